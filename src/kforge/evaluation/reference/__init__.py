"""The trusted side of a comparison: the problem's own module, its weights, and the deadline of its fp64 calls."""

"""The trusted side: the problem's own module, its state and weights, and a deadline for double precision."""

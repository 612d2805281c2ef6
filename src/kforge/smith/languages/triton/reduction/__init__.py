"""Reductions, softmax and norms in Triton."""

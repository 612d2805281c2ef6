"""Kernels for reductions, softmax and norms in Triton."""

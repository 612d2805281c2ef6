"""Kernels for matrix products in Triton."""

"""Kernels for convolutions in Triton."""

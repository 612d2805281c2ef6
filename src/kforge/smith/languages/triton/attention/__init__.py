"""Kernels for attention in Triton."""

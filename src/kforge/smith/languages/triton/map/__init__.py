"""Elementwise kernels in Triton."""

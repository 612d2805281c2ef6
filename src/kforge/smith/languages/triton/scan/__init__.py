"""Kernels for scans in Triton."""

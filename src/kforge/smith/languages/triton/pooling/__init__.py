"""Kernels for pooling and depthwise convolutions in Triton."""

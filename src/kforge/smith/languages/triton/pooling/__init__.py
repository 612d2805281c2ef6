"""Pooling and depthwise convolutions in Triton."""

"""Convolutions in Triton."""

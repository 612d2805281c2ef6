"""Triton on an NVIDIA GPU, or on the host by its interpreter."""

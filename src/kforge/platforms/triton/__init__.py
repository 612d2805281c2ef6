"""The platform for Triton: on an NVIDIA GPU, or on the host in Triton's interpreter."""

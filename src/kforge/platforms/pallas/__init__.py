"""The platform for Pallas kernels (JAX), which are interpreted on the host and lowered for a TPU."""

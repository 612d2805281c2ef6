"""Pallas kernels (JAX), interpreted on the host and checked for a TPU."""

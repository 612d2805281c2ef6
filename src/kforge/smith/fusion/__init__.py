"""Which nodes share a kernel, and as which loops."""

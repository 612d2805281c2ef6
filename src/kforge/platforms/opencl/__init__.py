"""The platform for OpenCL C on any device with a driver: GPUs, and the host's processors with PoCL."""

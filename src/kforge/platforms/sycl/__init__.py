"""The platform for SYCL C++, by Intel's packages on PyPI: Intel GPUs, and the host's processors."""

"""The platform for SYCL C++ on Intel GPUs and on the host's processors, with Intel's packages from PyPI."""

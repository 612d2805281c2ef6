"""The platform for CUDA C++ on NVIDIA GPUs."""

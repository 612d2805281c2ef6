"""CUDA C++ on an NVIDIA GPU."""

"""Decides which nodes share a kernel, and by which loops."""

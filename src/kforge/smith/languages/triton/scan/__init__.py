"""Scans in Triton."""

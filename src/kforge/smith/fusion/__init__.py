"""Decides which nodes of a graph share a kernel, and which loops each kernel has."""

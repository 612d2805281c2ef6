"""Judging what does not fit: a memory budget, a plan, and cases in pieces."""

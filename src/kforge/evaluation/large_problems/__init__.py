"""Judges problems that are too large to be judged whole: a memory budget, a plan, and cases in pieces."""

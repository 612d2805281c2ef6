"""Judges problems that are too large for the memory, or too slow in double precision, in pieces."""

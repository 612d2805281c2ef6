"""Comparing an output with the truth: element by element, locally, by magnitude, and in spite of overflow."""

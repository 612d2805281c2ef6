"""Compares an output with the truth: element by element, by parts, by magnitude, and beside overflow."""

"""Compares an output with the right one: by elements, by parts, by magnitudes, and where numbers overflow."""

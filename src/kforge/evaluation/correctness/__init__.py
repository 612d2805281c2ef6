"""Decides whether a program is correct: runs cases, compares outputs, side effects and state, and changes weights."""

"""Decides whether a program is correct: cases, perturbation, index ties, side effects, changes of weights."""

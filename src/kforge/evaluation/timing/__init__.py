"""Measures how fast a program is: the race against a baseline, its statistics, and checks of timed calls."""

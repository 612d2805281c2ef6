"""Measures how fast a program is: the race, its statistics, and checks of what timed calls leave behind."""

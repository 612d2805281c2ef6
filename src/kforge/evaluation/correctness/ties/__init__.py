"""Judges positions that are chosen among scores, and what follows from them."""

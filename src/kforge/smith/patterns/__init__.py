"""Calls of torch in one form each: attention, convolutions, products."""

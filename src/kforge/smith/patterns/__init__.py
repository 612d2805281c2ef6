"""Recognises calls of torch and describes each kind in one form: attention, convolutions, products."""

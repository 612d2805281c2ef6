"""Recognises calls of torch that are attention, convolutions or matrix products, and describes each as data."""

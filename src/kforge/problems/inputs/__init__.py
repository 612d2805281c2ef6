"""Draws inputs that differ in kind from the problem's own, and finds out which properties of inputs may be varied.
(torch)"""

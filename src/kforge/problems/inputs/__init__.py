"""Draws inputs of other kinds than the problem's own, and finds out what may be varied. (torch)"""

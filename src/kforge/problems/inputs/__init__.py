"""Inputs of other kinds than the problem's own: what draws have in common, and what may be varied. (torch)"""

"""Strategies that choose which attempt to continue from. They depend on attempts only; `linear` is the paper's."""

from kforge.search.linear import Move, Optimize, Repair, Write, next_move

__all__ = ["Move", "Optimize", "Repair", "Write", "next_move"]

"""Which attempt to grow next. The strategies know attempts and nothing else; `linear` is the paper's."""

from kforge.search.linear import Move, Optimize, Repair, Write, next_move

__all__ = ["Move", "Optimize", "Repair", "Write", "next_move"]

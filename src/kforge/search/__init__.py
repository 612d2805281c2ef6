"""Strategies that choose which attempts to continue from. They depend on attempts only; `linear` is the paper's.

linear       repair until correct, then improve the best program
best-of:N    every step N times, and the best result is continued
beam:K       the K best programs are improved side by side
tree         every attempt is a node; the one with the highest expected gain is continued
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.search.beam import BeamSearch
from kforge.search.best_of import BestOfSearch
from kforge.search.ensemble import EnsembleSearch
from kforge.search.history import root
from kforge.search.linear import LinearSearch
from kforge.search.moves import Move, Optimize, Repair, Strategy, Write
from kforge.search.tree import TreeSearch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHOICES", "LinearSearch", "Move", "Optimize", "Repair", "Strategy", "Write", "root", "strategy"]

CHOICES = "linear, best-of:N, beam:K or tree"
"""The values of `--search`, as help texts and messages name them."""
WIDEST = 16
"""Most attempts in one round. They are written without each other's results, and runs seldom have more iterations."""
_SINGLE: dict[str, Callable[[], Strategy]] = {"linear": LinearSearch, "tree": TreeSearch}
_WIDE: dict[str, Callable[[int], Strategy]] = {"best-of": BestOfSearch, "beam": BeamSearch}


def strategy(name: str, writers: int = 1) -> Strategy:
    """Return the strategy of this name. `writers` is the number of models of an ensemble: each writes a first program.

    Raises ValueError with one line that says what is possible.
    """
    if name in _SINGLE:
        return _SINGLE[name]() if writers == 1 else EnsembleSearch(writers, _SINGLE[name]())
    kind, colon, width = name.partition(":")
    if kind not in _WIDE or not colon:
        raise ValueError(f"unknown search {name[:40]!a}; choose {CHOICES}")
    if not (width.isascii() and width.isdecimal() and len(width) < 4 and 1 <= int(width) <= WIDEST):
        raise ValueError(f"the number in {kind}:N must be between 1 and {WIDEST}, not {width[:40]!a}")
    if int(width) < writers:
        raise ValueError(f"{name} writes fewer first programs than the {writers} models of the ensemble")
    return _WIDE[kind](int(width))

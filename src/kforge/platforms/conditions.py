"""What a device's speed depends on besides the program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Limit:
    """Something that holds a device back at this moment."""

    reason: str
    """As in "it was held back by …"."""
    own: bool
    """Whether a program reaches it by its own work, every time, as it does a power limit; heat has a history."""

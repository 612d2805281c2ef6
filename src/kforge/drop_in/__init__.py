"""Forged modules: the caller's own module, which runs a verified program where that fits and itself where it does not.

`module.ForgedModule` is what a user holds. For each call `calls` says whether the program was verified for such inputs,
`moment` whether torch is in a state in which it can run (gradients, autocast, tracing), and `watched` whether the
module still is what the program was verified against. `program` builds the program and binds it to the module's
weights.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FallbackWarning", "Obstacle", "SpeedWarning"]


class FallbackWarning(UserWarning):
    """A forged module runs the caller's own module instead of the kernel; the message says why and what to do."""


class SpeedWarning(UserWarning):
    """A kernel that is correct is used, although it is not proven to be faster."""


class Obstacle(NamedTuple):
    """A reason why the program cannot serve a call. A forged module warns once about each kind."""

    kind: str
    reason: str
    advice: str = ""

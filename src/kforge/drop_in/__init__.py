"""Forged modules: the caller's own module, which runs a verified program for calls that the program can serve, and its
own `forward` for all others.

`module.ForgedModule` is the class that a user holds. For each call, `calls` checks whether the program was verified for
such inputs, `moment` whether torch is in a state in which the program can run (no gradients, autocast or tracing), and
`watched` whether the module has changed. `program` builds the program and binds it to the module's weights.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FallbackWarning", "Obstacle", "SpeedWarning"]


class FallbackWarning(UserWarning):
    """Warns that a forged module runs the caller's own module instead of the kernel. The message says why and what to
    do."""


class SpeedWarning(UserWarning):
    """Warns that the kernel in use is correct, but was not proven faster."""


class Obstacle(NamedTuple):
    """A reason why the program cannot serve a call. A forged module warns once for each `kind`."""

    kind: str
    reason: str
    advice: str = ""

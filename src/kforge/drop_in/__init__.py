"""Forged modules: the caller's own module, which runs a verified program for the calls that it fits, and itself for
others.

`module.ForgedModule` is what a user holds. For each call, `calls` decides whether the program was verified for these
inputs, `moment` whether torch is in a state in which it can run (gradients, autocast, tracing), and `watched` whether
the module has changed since. `program` builds the program and binds it to the module's weights.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FallbackWarning", "Obstacle", "SpeedWarning"]


class FallbackWarning(UserWarning):
    """Warning: a forged module runs the caller's own module instead of the kernel. The message says why and what to
    do."""


class SpeedWarning(UserWarning):
    """Warning: the kernel in use is correct, but not proven to be faster."""


class Obstacle(NamedTuple):
    """A reason why the program cannot serve a call. A forged module warns once for each kind."""

    kind: str
    reason: str
    advice: str = ""

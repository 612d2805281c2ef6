"""Compares torch's settings before and after a call of the program. A program must not change its caller's settings.
(torch)

This runs in the worker, so a program can hide a change. It catches honest mistakes only, such as a default dtype that
is not restored. It sees settings that one call leaves changed, not those that the program changes when it is imported
or constructed. It does not see that gradients were switched off for the caller, because the worker calls programs with
gradients off.
"""

from __future__ import annotations

import secrets
import sys

import torch

from kforge.problems.randomness import generator_states, seed_generators

GENERATOR = "the state of torch's random generator"
"""Name under which a changed generator is reported."""


def settings() -> dict[str, str]:
    """Return the value of each of torch's settings, by the setting's name, as the calling thread sees them. This takes
    about two microseconds."""
    return {
        "the default dtype": str(torch.get_default_dtype()),
        "gradient mode": str(torch.is_grad_enabled()),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "the precision of float32 products": _product_precision(),
        "the number of threads": str(torch.get_num_threads()),
        # torch has no function that reads this mode; when it is on, half of the smallest normal number is zero
        "flushing of denormal numbers": str(sys.float_info.min * 0.5 == 0.0),
    }


def _product_precision() -> str:
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:  # the precision was set for single backends, and the function has no word for that
        return "mixed"


class CallerSettings:
    """The settings at the moment when this object is made, to be compared with those after a call."""

    def __init__(self, *, draws: bool) -> None:
        """`draws`: the reference draws random numbers, so the random generators may change."""
        self._generators: list[bytes] | None = None
        if not draws:
            # each call gets another seed: with the same one, a program that sets a fixed seed in each call would change
            # nothing the second time
            seed_generators(secrets.randbits(63))
            self._generators = generator_states()
        self._settings = settings()

    def changes(self) -> list[tuple[str, str, str]]:
        """Return the name, the earlier value and the present value of each setting that has changed since this object
        was made."""
        now = settings()
        found = [(name, before, now[name]) for name, before in self._settings.items() if now[name] != before]
        if self._generators is not None and self._generators != generator_states():
            found.append((GENERATOR, "", ""))
        return found

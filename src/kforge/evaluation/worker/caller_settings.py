"""Compares torch's settings before and after a call of the program, which must leave its caller's settings alone.
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
    """Return torch's settings for the calling thread by name. This takes about two microseconds."""
    return {
        "the default dtype": str(torch.get_default_dtype()),
        "gradient mode": str(torch.is_grad_enabled()),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "the precision of float32 products": _product_precision(),
        "the number of threads": str(torch.get_num_threads()),
        # torch has no function that tells: with the mode on, half of the smallest normal number is zero
        "flushing of denormal numbers": str(sys.float_info.min * HALF == 0.0),
    }


HALF = float("0.5")
"""One half, by a name so that Python computes the product above in each call."""


def _product_precision() -> str:
    try:
        return str(torch.get_float32_matmul_precision())
    except RuntimeError:  # set for single backends, which the function cannot tell
        return "mixed"


class CallerSettings:
    """The settings before a call. `draws`: the reference draws random numbers, so the generator may change."""

    def __init__(self, *, draws: bool) -> None:
        self._generators: list[bytes] | None = None
        if not draws:
            # another seed for each call: a program that always sets the same seed changes nothing the second time
            seed_generators(secrets.randbits(63))
            self._generators = generator_states()
        self._settings = settings()

    def changes(self) -> list[tuple[str, str, str]]:
        """Return name, former and present value of each setting that has changed since."""
        now = settings()
        found = [(name, before, now[name]) for name, before in self._settings.items() if now[name] != before]
        if self._generators is not None and self._generators != generator_states():
            found.append((GENERATOR, "", ""))
        return found

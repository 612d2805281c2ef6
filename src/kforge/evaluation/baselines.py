"""The kept measurement of `torch.compile`: its record, its identity and the environment in which it compiles.

The speed of `torch.compile` relative to eager is measured once for each problem, device and mode, and is cached. Only
the ratio is kept. Every evaluation times eager again beside the candidate, so that changes of the machine's speed
cancel out. The candidate's speedup over `torch.compile` is computed from the two ratios.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING

from kforge.choices import CompileMode
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

HASTE = MappingProxyType({"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "1"})
"""Environment variables that make `torch.compile` start faster. The first stops it from starting compiler processes,
each of which imports torch. The second stops it from building programs that test for vector instructions. On two
cores, a small program then compiles in 17 s instead of 33 s."""
NOT_COMPILED = "CppCompileError"
"""Name of torch's exception for a failed C++ compilation. With HASTE, the compiler may refuse assumed vector
instructions."""

KEPT_SECONDS = 3600.0
"""Seconds for which a failed measurement, or one in doubt, is used before `torch.compile` is measured again."""

_COMPILED = "torch.compile "
_TRIES_MANY = "max-autotune"
"""Prefix of the modes that build dozens of kernels for a device, and need all processors for that."""


class CompileBaseline(Record):
    """How `torch.compile` compares with eager on one problem, or the reason (`unavailable`) why this is not known.

    `log_ratios` has log(eager seconds / compiled seconds) for each pair of timed blocks. `seconds` is the time of one
    compiled call.
    """

    identity: str
    log_ratios: tuple[float, ...] = ()
    seconds: float = 0.0
    unavailable: str = ""
    doubt: str | None = None
    """Why this measurement is in doubt; None if it is not."""
    measured_at: float = 0.0
    """When it was measured, in seconds since 1970."""

    @property
    def is_lasting(self) -> bool:
        """Whether the measurement never expires. One in doubt expires, and so does a failure, whose cause may be this
        environment, for example a missing compiler."""
        return self.doubt is None and not self.unavailable

    def holds(self, now: float) -> bool:
        """Return whether the measurement is used at this time, in seconds since 1970.

        A failure, or a measurement in doubt, is used for KEPT_SECONDS, so that not every program of a run waits for the
        compiler again.
        """
        return self.is_lasting or 0.0 <= now - self.measured_at < KEPT_SECONDS


def haste(mode: str, *, on_host: bool) -> Mapping[str, str]:
    """Return the environment variables with which a worker compiles quickly in this mode. Empty for a mode that builds
    many kernels for a device, because it needs all compiler processes."""
    return HASTE if on_host or not mode.startswith(_TRIES_MANY) else {}


def identity(mode: str, *, torch_version: str, threads: int, precision: str) -> str:
    """Return the JSON text that identifies a baseline in a receipt. The precision is part of it, because some devices
    compute the baseline with it."""
    return json.dumps({"mode": mode, "torch": torch_version, "threads": threads, "precision": precision})


def compiled_as(mode: str) -> str:
    """Return the name of a mode of `torch.compile` as `identity` contains it."""
    return _COMPILED + mode


def compile_mode(identity: str) -> str:
    """Return the mode of `torch.compile` that an identity contains. Raises ValueError if it contains none."""
    try:
        told = json.loads(identity)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    mode = told.get("mode") if isinstance(told, dict) else None
    if not isinstance(mode, str) or mode.removeprefix(_COMPILED) not in tuple(CompileMode):
        raise ValueError(f"no mode of torch.compile: {identity}")
    return mode.removeprefix(_COMPILED)

"""Measures `torch.compile` once per problem, device and mode, and keeps the result by content hash.

Only the ratio to eager is kept. Every evaluation measures eager again beside the candidate, so a machine that is slower
today is slower for all of them, and the candidate's speedup over `torch.compile` follows from two paired ratios.
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
"""Environment for `torch.compile`: no extra compiler processes, each of which imports torch first, and no programs
built only to find out which vector instructions the compiler knows. Without it a small program takes 33 s on two cores
of a host, with it 17 s."""
NOT_COMPILED = "CppCompileError"
"""Name of the error that says that the compiler refused."""

_COMPILED = "torch.compile "
_TRIES_MANY = "max-autotune"
"""Modes that begin with this build dozens of kernels for a device, and need all processors for that."""


class CompileBaseline(Record):
    """Paired log-ratios log(eager seconds / compiled seconds), or why there are none."""

    identity: str
    log_ratios: tuple[float, ...] = ()
    seconds: float = 0.0
    unavailable: str = ""
    doubt: str | None = None
    """Why this measurement is used once and not kept."""

    @property
    def is_lasting(self) -> bool:
        """Whether the measurement is kept for later evaluations. A failure may be caused by this environment, for
        example a missing compiler."""
        return self.doubt is None and not self.unavailable


def haste(mode: str, *, on_host: bool) -> Mapping[str, str]:
    """Return the environment of a worker that compiles quickly in this mode."""
    return HASTE if on_host or not mode.startswith(_TRIES_MANY) else {}


def identity(mode: str, *, torch_version: str, threads: int, precision: str) -> str:
    """Return the exact identity of a baseline for the receipt; on some devices it may use the declared precision."""
    return json.dumps({"mode": mode, "torch": torch_version, "threads": threads, "precision": precision})


def compiled_as(mode: str) -> str:
    """Return how `identity` names a mode of `torch.compile`."""
    return _COMPILED + mode


def compile_mode(identity: str) -> str:
    """The mode of `torch.compile` that an identity names. Raises ValueError where it names none."""
    try:
        told = json.loads(identity)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    mode = told.get("mode") if isinstance(told, dict) else None
    if not isinstance(mode, str) or mode.removeprefix(_COMPILED) not in tuple(CompileMode):
        raise ValueError(f"no mode of torch.compile: {identity}")
    return mode.removeprefix(_COMPILED)

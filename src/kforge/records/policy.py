"""By which rules programs are evaluated, and what an evaluation may use: chosen once, and passed on whole."""

from __future__ import annotations

from types import MappingProxyType

from pydantic import ValidationInfo, field_validator

from kforge.choices import CompileMode, Precision, Track
from kforge.records.record import Record

CHOICES = MappingProxyType(
    {
        "precision": tuple(map(str, Precision)),
        "track": tuple(map(str, Track)),
        "compile_mode": tuple(map(str, CompileMode)),
    }
)
"""What can be chosen, by the name of the rule."""

TIMING_SECONDS = 0.9
"""Seconds for which a candidate is timed, if they decide whether it is faster."""
PATIENCE = 11.0
"""Factor for the longest timing (ten seconds) where they do not."""
LONGEST_SHOWN = 60
"""Characters of a wrong name that a message repeats."""


def check_choice(rule: str, name: str) -> str:
    """The name. Raises ValueError for one that the rule does not have."""
    if name not in CHOICES[rule]:
        shown = ascii(name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}...")
        raise ValueError(f"there is no {rule.replace('_', ' ')} {shown}; there are {', '.join(CHOICES[rule])}")
    return name


class EvaluationPolicy(Record):
    """The rules of an evaluation. Two evaluations by the same policy can be compared."""

    precision: str = Precision.STRICT.value
    """How exact a program must be."""
    track: str = Track.LIBRARY.value
    """`library`: whoever does the work; `custom`: the program's own kernels must."""
    compile_baseline: bool = True
    """Whether candidates are also compared with `torch.compile`."""
    compile_mode: str = CompileMode.DEFAULT.value
    """The mode of `torch.compile`."""
    unsafe: bool = False
    """Whether programs may run where no sandbox works."""

    @field_validator(*CHOICES)
    @classmethod
    def _is_known(cls, name: str, about: ValidationInfo) -> str:
        return check_choice(str(about.field_name), name)


class EvaluationLimits(Record):
    """What one evaluation may take."""

    call_deadline: float = 60.0
    """Seconds for one call of a candidate, or one timed block."""
    timing_seconds: float = TIMING_SECONDS
    """How long a candidate is timed, as far as that can be chosen: longer makes the interval narrower."""
    timing_cap: float | None = None
    """How long at most, while it is not decided whether it is faster; `PATIENCE` times as long unless given."""
    memory: int = 0
    """Bytes that all processes of the evaluation may use together; 0: what is free."""

    @property
    def longest_timing(self) -> float:
        return PATIENCE * self.timing_seconds if self.timing_cap is None else self.timing_cap

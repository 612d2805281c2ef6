"""The rules by which programs are evaluated, and the limits of an evaluation: chosen once, and passed on whole."""

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
"""The choices of each rule, by its name."""

TIMING_SECONDS = 0.9
"""Seconds for which a candidate is timed, if they suffice to decide whether it is faster."""
PATIENCE = 11.0
"""The longest timing as a multiple of the usual seconds (ten seconds), where they do not suffice."""
LONGEST_SHOWN = 60
"""Most characters of a wrong name that a message quotes."""


def check_choice(rule: str, name: str) -> str:
    """Return the name. Raises ValueError for one that the rule does not have."""
    if name not in CHOICES[rule]:
        shown = ascii(name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}...")
        raise ValueError(f"there is no {rule.replace('_', ' ')} {shown}; there are {', '.join(CHOICES[rule])}")
    return name


class EvaluationPolicy(Record):
    """The rules of an evaluation. Two evaluations by the same policy can be compared."""

    precision: str = Precision.STRICT.value
    """How exact a program must be."""
    track: str = Track.LIBRARY.value
    """`library`: library kernels may do the work; `custom`: the program's own kernels must do it."""
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
    """Limits of one evaluation."""

    call_deadline: float = 60.0
    """Seconds for one call of a candidate, or one timed block."""
    timing_seconds: float = TIMING_SECONDS
    """Seconds for which a candidate is timed: longer makes the interval narrower."""
    timing_cap: float | None = None
    """Most seconds of timing while it is undecided whether the candidate is faster; by default `PATIENCE` times
    `timing_seconds`."""
    memory: int = 0
    """Bytes that all processes of the evaluation may use together; 0 means all free memory."""

    @property
    def longest_timing(self) -> float:
        return PATIENCE * self.timing_seconds if self.timing_cap is None else self.timing_cap

"""The rules of an evaluation (`EvaluationPolicy`) and its limits of time and memory (`EvaluationLimits`)."""

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
"""The allowed values of each rule, by its name."""

TIMING_SECONDS = 0.9
"""Default seconds of timing of a candidate. If they do not decide whether it is faster, timing goes on (`PATIENCE`)."""
PATIENCE = 11.0
"""Default limit of timing, as a multiple of `timing_seconds`: about 10 seconds, if these are `TIMING_SECONDS`."""
LONGEST_SHOWN = 60
"""Most characters of a wrong name that a message quotes."""


def check_choice(rule: str, name: str) -> str:
    """Return the name if it is an allowed value of this rule. Raises ValueError otherwise."""
    if name not in CHOICES[rule]:
        shown = ascii(name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}...")
        raise ValueError(f"unknown {rule.replace('_', ' ')} {shown}; choose one of {', '.join(CHOICES[rule])}")
    return name


class EvaluationPolicy(Record):
    """The rules of an evaluation. Results with the same policy can be compared."""

    precision: str = Precision.STRICT.value
    """How exact a program must be: `strict`, `tf32` or `half`."""
    track: str = Track.LIBRARY.value
    """`library`: library kernels may do the work. `custom`: the program's own kernels must do it."""
    compile_baseline: bool = True
    """Whether candidates are also compared with `torch.compile`."""
    compile_mode: str = CompileMode.DEFAULT.value
    """The mode of `torch.compile`."""
    unsafe: bool = False
    """Whether programs may run without a sandbox if none works."""

    @field_validator(*CHOICES)
    @classmethod
    def _is_known(cls, name: str, about: ValidationInfo) -> str:
        return check_choice(str(about.field_name), name)


class EvaluationLimits(Record):
    """Limits of time and memory of one evaluation."""

    call_deadline: float = 60.0
    """Seconds for one call of a candidate, or for one timed block."""
    timing_seconds: float = TIMING_SECONDS
    """Seconds for which a candidate is timed. A longer time gives a narrower interval."""
    timing_cap: float | None = None
    """Most seconds of timing if it stays undecided whether the candidate is faster. None: PATIENCE times
    `timing_seconds`."""
    memory: int = 0
    """Bytes that all processes of the evaluation may use together; 0 means all free memory."""

    @property
    def longest_timing(self) -> float:
        """Most seconds of timing."""
        return PATIENCE * self.timing_seconds if self.timing_cap is None else self.timing_cap

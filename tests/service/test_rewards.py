"""What a trainer is paid for, and what not."""

from __future__ import annotations

from typing import Any

import pytest
from tests.service.conftest import PROBLEM, RIGHT, UNCHANGED

from kforge.records import (
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    Interval,
    Mismatch,
    Problem,
    Receipt,
    Rejected,
    RuntimeFailure,
    Timing,
)
from kforge.service.rewards import reward

PROBLEM_RECORD = Problem(name="tiny", source=PROBLEM)
FAST = Interval(median=2.0, low=1.7, high=2.3)


def evaluated(verdict: Any) -> Evaluation:
    receipt = Receipt(
        problem="", candidate="", platform="null", precision="strict", track="library", seed="", device="", versions={},
        sandbox="", timer="",
    )  # fmt: skip
    return Evaluation(verdict=verdict, receipt=receipt)


def timed(speedup: Interval, doubt: str | None = None) -> Correct:
    eager = Comparison(baseline="eager", identity="", seconds=1.0, speedup=speedup, doubt=doubt)
    timing = Timing(seconds=Interval(median=0.5, low=0.4, high=0.6), comparisons=(eager,), pairs=9)
    return Correct(max_error=0.0, tolerance=1.0, cases=20, timing=timing)


@pytest.mark.parametrize(
    ("verdict", "source", "value", "said"),
    [
        (timed(FAST), RIGHT, 1.7, "lower bound"),
        (timed(Interval(median=0.5, low=0.4, high=0.6)), RIGHT, 0.4, "lower bound"),
        (timed(FAST, doubt="a busy machine"), RIGHT, 0.0, "a busy machine"),
        (timed(FAST), UNCHANGED, 0.0, "unchanged"),
        (Correct(max_error=0.0, tolerance=1.0, cases=20, untimed="emulated"), RIGHT, 0.0, "not timed: emulated"),
        (Rejected(rule="a rule", reason="it cheats"), RIGHT, 0.0, "rejected"),
        (Mismatch(kind="numerical", reason="off"), RIGHT, 0.0, "mismatch"),
        (RuntimeFailure(fault="died", reason="gone"), RIGHT, 0.0, "runtime error"),
    ],
)
def test_a_reward_is_a_lower_bound_or_nothing(verdict: Any, source: str, value: float, said: str) -> None:
    found = reward(PROBLEM_RECORD, Candidate(source=source, platform="null"), evaluated(verdict))
    assert found.value == value
    assert said in found.reason


def test_no_program_has_no_reward() -> None:
    assert reward(PROBLEM_RECORD, None, None) == (0.0, "no program")

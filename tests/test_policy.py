"""By which rules programs are evaluated."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kforge.evaluation.constants import FLOORS, TRACE_SAMPLES
from kforge.records import EvaluationLimits, EvaluationPolicy
from kforge.records.policy import CHOICES, PATIENCE
from kforge.run_options import RunOptions


def test_every_choice_has_its_figures_in_the_protocol() -> None:
    assert tuple(FLOORS) == CHOICES["precision"]
    assert tuple(TRACE_SAMPLES) == CHOICES["track"]


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("precision", "unknown precision 'best'; choose one of strict, tf32, half"),
        ("track", "unknown track 'best'; choose one of library, custom"),
        ("compile_mode", "unknown compile mode 'best'; choose one of default, reduce-overhead"),
    ],
)
def test_a_name_that_is_none_is_told_with_those_there_are(rule: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        EvaluationPolicy.model_validate({rule: "best"})


def test_a_long_name_is_cut() -> None:
    with pytest.raises(ValidationError, match=r"unknown track 'x{60}\.\.\.'; choose one of"):
        EvaluationPolicy(track="x" * 1000)


def test_the_policy_of_a_run_is_a_part_of_its_options() -> None:
    options = RunOptions(platform="null", model="m", analyst="m", precision="half", unsafe=True, iterations=9)
    assert options.policy == EvaluationPolicy(precision="half", unsafe=True)
    assert type(options.policy) is EvaluationPolicy


def test_timing_goes_on_for_longer_unless_it_is_capped() -> None:
    assert EvaluationLimits(timing_seconds=2.0).longest_timing == 2.0 * PATIENCE
    assert EvaluationLimits(timing_seconds=2.0, timing_cap=3.0).longest_timing == 3.0

"""Measures the facts that agents are told before the first program."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kforge.agents.facts import MeasuredFacts, original
from kforge.errors import EvaluationError, InputError
from kforge.records import HotSpot

if TYPE_CHECKING:
    from kforge.evaluation import Judge
    from kforge.records import Problem


def measured_facts(judge: Judge, problem: Problem) -> MeasuredFacts:
    """Return facts about the device, and PyTorch's own time and operators on the problem.

    A measurement that fails is left out, because a run does not need it. On an emulated platform, PyTorch's time and
    operators are not measured.
    """
    device, seconds, operators = "", 0.0, tuple[HotSpot, ...]()
    with suppress(EvaluationError, InputError):
        device = judge.facts().text
    if judge.platform.adapter.emulated() is None:
        with suppress(EvaluationError, InputError):
            profile = judge.profile(problem, original(problem, judge.platform.name), counters=False)
            seconds, operators = profile.seconds, profile.hot_spots
    return MeasuredFacts(device, seconds, operators)

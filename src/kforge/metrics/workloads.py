"""Combines the results of several workloads of one problem, each with its weight: how often it is served."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kforge.metrics.speedups import kept_speedup
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.metrics.result import ProblemResult


class WeightedResult(NamedTuple):
    """The result of one workload."""

    problem: str
    weight: float
    """How often the workload is served, relative to the others; greater than 0."""
    result: ProblemResult


class WorkloadGain(Record):
    """The results of all workloads of one problem together."""

    problem: str
    workloads: int
    correct: int
    """Number of workloads with a correct program."""
    not_measured: dict[str, int]
    """Number of workloads by baseline whose correct program was not compared, or whose measurement was disturbed.
    Means and times leave them out."""
    geometric_mean: dict[str, float]
    """Weighted geometric mean of the speedups, by baseline. Failures, and programs not proven faster, count as 1.0. A
    baseline is absent if nothing was measured against it."""
    served: dict[str, float]
    """How much faster all calls together are, by baseline: the baseline's time for the weighted calls, divided by the
    time with the best programs. A baseline is absent if a workload has no time of it."""


def weigh(parts: Sequence[WeightedResult], baselines: Sequence[str]) -> list[WorkloadGain]:
    """Return the combined results of each problem that has several workloads, once all of them are finished."""
    groups: dict[str, list[WeightedResult]] = {}
    for part in parts:
        groups.setdefault(part.problem, []).append(part)
    return [
        _gain(problem, group, baselines)
        for problem, group in groups.items()
        if len(group) > 1 and all(part.result.is_done for part in group)
    ]


def _gain(problem: str, group: Sequence[WeightedResult], baselines: Sequence[str]) -> WorkloadGain:
    kept = {name: [(part, _kept(part, name)) for part in group] for name in baselines}
    measured = {name: [(part, speedup) for part, speedup in each if speedup] for name, each in kept.items()}
    is_timed = {name: all(part.result.against(name) for part, _ in each) for name, each in measured.items()}
    return WorkloadGain(
        problem=problem,
        workloads=len(group),
        correct=sum(part.result.is_correct for part in group),
        not_measured={name: len(group) - len(each) for name, each in measured.items()},
        geometric_mean={name: _geometric_mean(each) for name, each in measured.items() if each},
        served={
            name: _served(each, name) for name, each in measured.items() if len(each) == len(group) and is_timed[name]
        },
    )


def _kept(part: WeightedResult, baseline: str) -> float:
    """Return the kept speedup over a baseline (`kept_speedup`); 0 if it is not known."""
    return kept_speedup(part.result, (baseline,)) or 0.0


def _geometric_mean(parts: Sequence[tuple[WeightedResult, float]]) -> float:
    total = math.fsum(part.weight for part, _ in parts)
    return math.exp(math.fsum(part.weight / total * math.log(speedup) for part, speedup in parts))


def _served(parts: Sequence[tuple[WeightedResult, float]], baseline: str) -> float:
    """Return the baseline's time for the weighted calls of all workloads, divided by the time with the best programs.

    A workload whose program is not proven faster keeps the baseline's time: `parts` has its kept speedup, which is 1.
    """
    before = after = 0.0
    for part, speedup in parts:
        comparison = part.result.against(baseline)
        assert comparison is not None
        before += part.weight * comparison.seconds
        after += part.weight * comparison.seconds / speedup
    return before / after

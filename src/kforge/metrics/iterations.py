"""Numbers of each iteration: how many attempts are in each state, how states change, and pass@k."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from kforge.metrics.resampling import Estimate, mean_with_band
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.metrics.result import AttemptResult, ProblemResult

START, ENDED = "start", "ended"
"""States of a problem before its first attempt, and after its last one."""


class IterationStates(Record):
    """The attempts of one iteration over all finished problems."""

    index: int
    """Number of the iteration, from 0."""
    states: dict[str, int]
    """Number of attempts in each state."""
    ended: int
    """Number of problems whose run had ended before this iteration."""
    solved: int
    """Number of problems with a correct program in this iteration or an earlier one."""


class StateChange(Record):
    """How many problems went from one state to another one between two iterations."""

    index: int
    """Number of the iteration that ends in `after`, from 0."""
    before: str
    """The state in the iteration before; `start` in the first one."""
    after: str
    """The state in this iteration; `ended` if the run ended before it."""
    problems: int


class PassAtK(Record):
    """The probability that at least one of k independent programs is correct."""

    k: int
    share: Estimate | None
    """Mean over the problems; None if all have too few samples."""
    problems: int
    """Number of finished problems that have at least k samples. Problems without any sample count as failures here."""
    too_few: int
    """Number of finished problems with some samples, but fewer than k. They have no pass@k and are left out."""


def iteration_states(results: Sequence[ProblemResult]) -> tuple[IterationStates, ...]:
    """Return for each iteration how many attempts of finished problems are in each state."""
    runs = _runs(results)
    return tuple(
        IterationStates(
            index=index,
            states=dict(Counter(run[index].state for run in runs if index < len(run)).most_common()),
            ended=sum(index >= len(run) for run in runs),
            solved=sum(any(step.is_correct for step in run[: index + 1]) for run in runs),
        )
        for index in range(max(map(len, runs), default=0))
    )


def state_changes(results: Sequence[ProblemResult]) -> tuple[StateChange, ...]:
    """Return how many problems change from one state to another in each iteration, for a flow diagram.

    The counts of one iteration add up to the problems whose run had not ended before.
    """
    counts: Counter[tuple[int, str, str]] = Counter()
    for run in _runs(results):
        states = [START, *(step.state for step in run), ENDED]
        counts.update((index, before, after) for index, (before, after) in enumerate(pairwise(states)))
    return tuple(StateChange(index=i, before=a, after=b, problems=n) for (i, a, b), n in sorted(counts.items()))


def chance_of_one(samples: int, correct: int, k: int) -> float:
    """Return the probability that k of these samples, drawn without replacement, contain a correct one.

    This is the unbiased estimator of pass@k. `k` is at most `samples`.
    """
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def pass_at_k(results: Sequence[ProblemResult], k: int, seed: int = 0) -> PassAtK:
    """Return pass@k over the finished problems. Samples are programs that were written from the problem alone.

    A problem of a name that occurs several times has the samples of all of them. One without any sample counts as 0.
    """
    samples: dict[str, list[AttemptResult]] = {}
    for result in results:
        if result.is_done:
            samples.setdefault(result.name, []).extend(step for step in result.steps if step.is_first)
    enough = [run for run in samples.values() if len(run) >= k or not run]
    chances = [chance_of_one(len(run), sum(step.is_correct for step in run), k) if run else 0.0 for run in enough]
    return PassAtK(
        k=k,
        share=mean_with_band(chances, seed),
        problems=len(enough),
        too_few=len(samples) - len(enough),
    )


def _runs(results: Sequence[ProblemResult]) -> list[tuple[AttemptResult, ...]]:
    return [result.steps for result in results if result.is_done]

"""Computes shares and means over the problems of a suite. Failed problems count.

A problem without a program that is proven faster counts as 1.0 in a geometric mean, because its user keeps the
original. A problem whose measurement is in doubt, or whose program was not compared with a baseline, counts as not
measured: it is counted separately, and is not part of any share or mean.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from kforge.metrics.speedups import kept_speedup
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.metrics.result import ProblemResult


class Gain(Record):
    """Results against one baseline, over the finished problems."""

    faster: int
    """Number of problems with a program that is proven faster: the lower bound of the interval is over 1.02, and
    the measurement is not in doubt."""
    measured: int
    """Number of problems that were measured, including failures."""
    not_measured: int
    """Number of problems with a correct program whose measurement is in doubt."""
    not_compared: int = 0
    """Number of problems with a correct program that was not compared with the baseline, for example because the
    baseline failed."""
    slower: int = 0
    """Number of problems with a correct program that is proven slower."""
    cannot_tell: int = 0
    """Number of problems with a correct program that was measured and is neither proven faster nor slower, because the
    interval leaves it open. `faster`, `slower`, `cannot_tell`, `not_measured` and `not_compared` add up to the problems
    with a correct program."""
    share: float | None = None
    """Share of the measured problems that are faster. None if there are correct programs but none was measured."""
    geometric_mean: float | None = None
    """Geometric mean of the median speedups of the measured problems. Failures, and programs not proven faster, count
    as 1.0. None if `share` is None."""

    @property
    def unknown(self) -> int:
        """Number of problems with a correct program whose speedup is not known."""
        return self.not_measured + self.not_compared


class Metrics(Record):
    """Numbers over one family of problems, or over a whole suite."""

    problems: int
    done: int
    """Number of finished problems. All shares are of these."""
    states: dict[str, int]
    correct: float
    """Share of the finished problems that have a correct program."""
    gains: dict[str, Gain]
    """Results by baseline. Empty if no problem is finished."""
    over_fastest: Gain | None = None
    """Results against the fastest baseline of each problem. None if there is only one baseline."""


def summarize(results: Sequence[ProblemResult], baselines: Sequence[str]) -> Metrics:
    """Return the numbers over these results."""
    done = [result for result in results if result.is_done]
    return Metrics(
        problems=len(results),
        done=len(done),
        states=dict(Counter(result.state for result in results).most_common()),
        correct=sum(result.is_correct for result in done) / len(done) if done else 0.0,
        gains={baseline: _gain(done, (baseline,)) for baseline in baselines} if done else {},
        over_fastest=_gain(done, baselines) if done and len(baselines) > 1 else None,
    )


def by_family(results: Sequence[ProblemResult], baselines: Sequence[str]) -> dict[str, Metrics]:
    """Return the numbers for each family, in the order of the problems."""
    families = dict.fromkeys(result.family for result in results)
    return {name: summarize([r for r in results if r.family == name], baselines) for name in families}


def _gain(done: Sequence[ProblemResult], baselines: Sequence[str]) -> Gain:
    """Return the results of the finished problems, each against the fastest of these baselines with which it was
    compared."""
    faster, slower, cannot_tell, in_doubt, not_compared = list[float](), 0, 0, 0, 0
    for result in done:
        compared = [each for baseline in baselines if (each := result.against(baseline)) is not None]
        speedup = kept_speedup(result, baselines)
        if speedup is None:
            in_doubt += bool(compared)
            not_compared += not compared
        elif speedup > 1.0:
            faster.append(speedup)
        elif any(each.finding == "slower" for each in compared):
            slower += 1
        else:
            cannot_tell += result.is_correct
    counted = Gain(
        faster=len(faster),
        measured=len(done) - in_doubt - not_compared,
        not_measured=in_doubt,
        not_compared=not_compared,
        slower=slower,
        cannot_tell=cannot_tell,
    )
    if counted.unknown and not (faster or slower or cannot_tell):
        return counted
    share, logs = len(faster) / counted.measured, sum(map(math.log, faster))
    return counted.model_copy(update={"share": share, "geometric_mean": math.exp(logs / counted.measured)})

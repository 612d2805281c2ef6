"""fast_p curves and mean speedups, against one baseline or against the fastest of several."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kforge.metrics.resampling import Estimate, bands, mean_with_band
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.metrics.result import ProblemResult

THRESHOLDS = (0.0, *(2.0 ** (step / 8) for step in range(-16, 41)))
"""The values of p of a curve: 0, and from 0.25 to 32 in steps of 9 %, among them 0.5, 1, 2 and 4."""
CORRECT_ONLY = 1e-100
"""The speedup of a correct program of which nothing else is known: over 0, and over no other threshold."""


class FastPoint(Record):
    """fast_p for one p, over all finished problems. Counts add up to the number of problems."""

    p: float
    share: Estimate
    """Share of problems whose median speedup is strictly over p, as KernelBench counts; at 0 the share of correct ones.
    A problem that was not measured is not over any p but 0."""
    over: int
    """Problems whose speedup is proven to be over p: the lower bound of the interval is."""
    not_over: int
    """Problems without a correct program, and those whose speedup is proven to be at most p."""
    cannot_tell: int
    """Problems that were measured, and for which neither is proven: the interval contains p."""
    not_measured: int
    """Problems with a correct program for which nothing is known at this p: the measurement was disturbed, or the
    program was not compared with the baseline."""


class FastCurve(Record):
    """fast_p over a range of p."""

    baselines: tuple[str, ...]
    """Each problem counts against the fastest of these baselines with which it was compared."""
    problems: int
    measured: int
    """Number of problems with a correct program and a measured speedup. Without any, the curve shows nothing."""
    not_measured: int
    """Number of problems with a correct program whose speedup is unknown."""
    points: tuple[FastPoint, ...]
    """Points by ascending p; empty if no problem is finished."""

    def at(self, p: float) -> FastPoint | None:
        """Return the point for this p; None if the curve has none."""
        return next((point for point in self.points if point.p == p), None)


@dataclass(frozen=True)
class Bounds:
    """The speedup of one problem's best program: median and interval. A failure has 0 for all of them."""

    median: float
    low: float
    high: float

    @property
    def is_measured(self) -> bool:
        """Whether there is a correct program whose speedup is known."""
        return self.low > CORRECT_ONLY

    @property
    def is_unknown(self) -> bool:
        """Whether there is a correct program, and nothing but a bound of its speedup is known."""
        return self.low == CORRECT_ONLY


FAILED = Bounds(0.0, 0.0, 0.0)


def bounds_of(result: ProblemResult, baselines: Sequence[str]) -> Bounds:
    """Return the speedup over the fastest of these baselines with which the program was compared."""
    if not result.is_correct:
        return FAILED
    compared = [each for baseline in baselines if (each := result.against(baseline)) is not None]
    sure = [each.speedup for each in compared if each.doubt is None]
    high = min((each.high for each in sure), default=math.inf)
    if not sure or len(sure) < len(compared):
        return Bounds(CORRECT_ONLY, CORRECT_ONLY, high)
    return Bounds(min(each.median for each in sure), min(each.low for each in sure), high)


def fast_curve(
    results: Sequence[ProblemResult],
    baselines: Sequence[str],
    thresholds: Sequence[float] = THRESHOLDS,
    seed: int = 0,
) -> FastCurve:
    """Return fast_p over the finished problems for each threshold, in ascending order."""
    found = [bounds_of(result, baselines) for result in results if result.is_done]
    if not found:
        return FastCurve(baselines=tuple(baselines), problems=0, measured=0, not_measured=0, points=())
    p = np.asarray(sorted(set(thresholds)), dtype=np.float64)
    medians, lows, highs = np.asarray([(each.median, each.low, each.high) for each in found]).T[:, :, None]
    is_over = (medians > p).astype(np.float64)
    shares, ends = is_over.mean(axis=0), bands(is_over, seed)
    over, not_over = (lows > p).sum(axis=0), (highs <= p).sum(axis=0)
    unknown = np.asarray([each.is_unknown for each in found])[:, None]
    not_measured = (unknown & (lows <= p) & (highs > p)).sum(axis=0)
    points = tuple(
        FastPoint(
            p=float(p[i]),
            share=Estimate(value=float(shares[i]), low=float(ends[0, i]), high=float(ends[1, i])),
            over=int(over[i]),
            not_over=int(not_over[i]),
            cannot_tell=len(found) - int(over[i]) - int(not_over[i]) - int(not_measured[i]),
            not_measured=int(not_measured[i]),
        )
        for i in range(len(p))
    )
    return FastCurve(
        baselines=tuple(baselines),
        problems=len(found),
        measured=sum(each.is_measured for each in found),
        not_measured=sum(each.is_unknown for each in found),
        points=points,
    )


def fast_curves(results: Sequence[ProblemResult], baselines: Sequence[str], seed: int = 0) -> tuple[FastCurve, ...]:
    """Return a curve for each baseline; where there are several, also one against the fastest of them."""
    sets = [(each,) for each in baselines] + ([tuple(baselines)] if len(baselines) > 1 else [])
    return tuple(fast_curve(results, each, seed=seed) for each in sets)


def kept_speedup(result: ProblemResult, baselines: Sequence[str]) -> float | None:
    """Return the speedup for a user that keeps the original module unless the program is proven faster.

    It is 1.0 for a failure, and None if it is unknown: the measurement was disturbed, or the program was not compared.
    """
    compared = [each for baseline in baselines if (each := result.against(baseline)) is not None]
    if any(each.doubt is None and each.finding != "faster" for each in compared) or not result.is_correct:
        return 1.0
    if not compared or any(each.doubt is not None for each in compared):
        return None
    return min(each.speedup.median for each in compared)


def mean_speedup(results: Sequence[ProblemResult], baselines: Sequence[str], seed: int = 0) -> Estimate | None:
    """Return the geometric mean of the kept speedups of finished problems, failures as 1.0, with its bootstrap band.

    Problems whose speedup is unknown are left out. None if no problem is left, or if only failures are left: no
    measurement would then support a mean of 1.00x.
    """
    done = [result for result in results if result.is_done]
    kept = [kept_speedup(result, baselines) for result in done]
    told = [result.is_correct for result, each in zip(done, kept, strict=True) if each is not None]
    if len(told) < len(kept) and not any(told):
        return None
    logs = mean_with_band([math.log(each) for each in kept if each is not None], seed)
    return None if logs is None else Estimate(**{name: math.exp(value) for name, value in logs})

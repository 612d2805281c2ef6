"""How close programs come to what the device allows: share of the roofline, and the SOL (speed of light) score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.metrics.resampling import Estimate, mean_with_band
from kforge.records import BELIEVABLE_SHARE, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.metrics.result import ProblemResult


class Ceiling(Record):
    """A score between 0 and 1 over all finished problems. A problem without a correct program has 0."""

    mean: Estimate | None
    """None if no problem has a score."""
    problems: int
    """Number of problems with a score, failures included."""
    unknown: int
    """Number of problems with a correct program but no score: it was not timed or not profiled, or the measured
    roofline is above what the program does."""


def roofline_share(result: ProblemResult) -> float | None:
    """Return the least time that the device allows divided by the program's time, at most 1; 0 without a correct one.

    None if it is unknown: no timing, no profile, or a roofline that the program clearly passes.
    """
    if not result.is_correct:
        return 0.0
    seconds, roofline = result.program_seconds, result.roofline
    if seconds is None or roofline is None or not (least := roofline.least_seconds(seconds)):
        return None
    share = least / seconds
    return min(share, 1.0) if share <= BELIEVABLE_SHARE else None


def sol_score(seconds: float, baseline: float, least: float) -> float | None:
    """Return `1 / (1 + (T - Tsol) / (Tb - Tsol))`: 0.5 for a program as slow as the baseline, 1 at the speed of light.

    A program below the least time counts as at it. None if the baseline is not above the least time, because then
    nothing could be gained.
    """
    room = baseline - least
    if room <= 0:
        return None
    return room / (room + max(seconds - least, 0.0))


def sol_of(result: ProblemResult, baseline: str = "eager") -> float | None:
    """Return the SOL score of a problem's best program against a baseline; 0 without a correct program.

    None if it is unknown: no undisturbed comparison, no believable roofline, or a baseline at the least time.
    """
    if not result.is_correct:
        return 0.0
    compared = result.against(baseline)
    if compared is None or compared.doubt is not None or not roofline_share(result):
        return None
    assert result.roofline is not None
    assert result.program_seconds is not None
    seconds = result.program_seconds
    return sol_score(seconds, compared.seconds, result.roofline.least_seconds(seconds))


def roofline_shares(results: Sequence[ProblemResult], seed: int = 0) -> Ceiling:
    """Return the mean share of the roofline over the finished problems."""
    return _ceiling(results, roofline_share, seed)


def sol_scores(results: Sequence[ProblemResult], baseline: str = "eager", seed: int = 0) -> Ceiling:
    """Return the mean SOL score over the finished problems."""
    return _ceiling(results, lambda result: sol_of(result, baseline), seed)


def _ceiling(results: Sequence[ProblemResult], score: Callable[[ProblemResult], float | None], seed: int) -> Ceiling:
    scores = [score(result) for result in results if result.is_done]
    known = [each for each in scores if each is not None]
    return Ceiling(mean=mean_with_band(known, seed), problems=len(known), unknown=len(scores) - len(known))

"""Compares two sets of runs problem by problem, and tests whether they differ significantly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from kforge.metrics.resampling import ALPHA, Estimate, bands, holm, least_pairs, sign_flip_p
from kforge.metrics.speedups import kept_speedup
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.metrics.result import ProblemResult

Scale = Literal["share", "ratio", "amount"]
NO_DIFFERENCE: Final = "no difference shown"
"""The finding of a test that is not significant. It does not say that both are equal."""
PairedFinding = Literal["better", "worse", "no difference shown"]


@dataclass(frozen=True)
class Measure:
    """A number for each problem by which two sets of runs are compared."""

    label: str
    """What the number is, for users."""
    scale: Scale
    """`share`: 0 or 1, compared by difference; `ratio`: positive, compared by quotient; `amount`: by difference."""
    value: Callable[[ProblemResult, Sequence[str]], float | None]
    """Returns the number of one result against these baselines; None if it is unknown."""
    is_cost: bool = False
    """Whether less is better."""


def _first_correct(result: ProblemResult, baselines: Sequence[str]) -> float | None:  # noqa: ARG001 - as all measures
    return float(bool(result.steps) and result.steps[0].is_correct)


def _correct(result: ProblemResult, baselines: Sequence[str]) -> float | None:  # noqa: ARG001
    return float(result.is_correct)


def _faster(result: ProblemResult, baselines: Sequence[str]) -> float | None:
    kept = kept_speedup(result, baselines)
    return None if kept is None else float(kept > 1.0)


def _tokens(result: ProblemResult, baselines: Sequence[str]) -> float | None:  # noqa: ARG001
    return float(result.usage.input_tokens + result.usage.output_tokens)


def _device_seconds(result: ProblemResult, baselines: Sequence[str]) -> float | None:  # noqa: ARG001
    return result.device_seconds


def _programs(result: ProblemResult, baselines: Sequence[str]) -> float | None:  # noqa: ARG001
    if not result.is_correct:
        return None
    return next((float(number) for number, step in enumerate(result.steps, 1) if step.is_correct), None)


MEASURES: Mapping[str, Measure] = {
    "first_correct": Measure("first program correct", "share", _first_correct),
    "correct": Measure("correct", "share", _correct),
    "faster": Measure("proven faster", "share", _faster),
    "speedup": Measure("speedup", "ratio", kept_speedup),
    "programs": Measure("programs until correct", "amount", _programs, is_cost=True),
    "tokens": Measure("tokens", "amount", _tokens, is_cost=True),
    "device_seconds": Measure("device-seconds", "amount", _device_seconds, is_cost=True),
}
"""The measures by name."""


class PairedTest(Record):
    """One measure of two sets of runs, over the problems that both have."""

    measure: str
    """A key of `MEASURES`."""
    pairs: int
    """Number of problems for which both sides have the number."""
    unknown: int
    """Number of problems that both sides have finished, but whose number is unknown on a side."""
    differ: int
    """Number of pairs that differ."""
    base: float | None = None
    """Mean of the base side over the pairs; the geometric mean of a ratio. None if there are no pairs."""
    other: float | None = None
    difference: Estimate | None = None
    """Other minus base, or other divided by base for a ratio, with its bootstrap band over problems."""
    p_value: float = 1.0
    """Two-sided p-value of the paired permutation test."""
    adjusted: float = 1.0
    """The p-value adjusted by Holm's method for all tests that were made together."""
    needed: int = 0
    """Least number of differing pairs that can be significant, given how many tests are adjusted together."""

    @property
    def finding(self) -> PairedFinding:
        """Whether the other side is better or worse than the base."""
        if self.difference is None or self.adjusted > ALPHA:
            return NO_DIFFERENCE
        neutral = 1.0 if MEASURES[self.measure].scale == "ratio" else 0.0
        return "better" if (self.difference.value > neutral) != MEASURES[self.measure].is_cost else "worse"


def paired_test(
    base: Sequence[ProblemResult], other: Sequence[ProblemResult], measure: str, baselines: Sequence[str], seed: int = 0
) -> PairedTest:
    """Return the test of one measure, not yet adjusted for other tests.

    Several results of one name, from repeated runs, are one problem with the mean of their numbers.
    """
    measured = MEASURES[measure]
    ours, theirs = (_by_problem(results, measured, baselines) for results in (base, other))
    shared = [name for name in ours if name in theirs]
    pairs = [(a, b) for name in shared if (a := ours[name]) is not None and (b := theirs[name]) is not None]
    if not pairs:
        return PairedTest(measure=measure, pairs=0, unknown=len(shared), differ=0)
    values = np.asarray(pairs, dtype=np.float64)
    apart = values[:, 1] - values[:, 0]
    apart[np.isclose(values[:, 0], values[:, 1], rtol=1e-12, atol=0)] = (
        0.0  # a mean of repetitions may differ by rounding
    )
    low, high = bands(apart[:, None], seed)[:, 0]
    back = math.exp if measured.scale == "ratio" else float
    return PairedTest(
        measure=measure,
        pairs=len(pairs),
        unknown=len(shared) - len(pairs),
        differ=int(np.count_nonzero(apart)),
        base=back(values[:, 0].mean()),
        other=back(values[:, 1].mean()),
        difference=Estimate(value=back(apart.mean()), low=back(low), high=back(high)),
        p_value=sign_flip_p(apart.tolist(), seed),
    )


def adjusted(tests: Sequence[PairedTest]) -> list[PairedTest]:
    """Return the tests with their p-values adjusted for each other by Holm's method. Tests without pairs do not
    count."""
    made = [test for test in tests if test.pairs]
    values = iter(holm([test.p_value for test in made]))
    needed = least_pairs(max(len(made), 1))
    return [
        test.model_copy(update={"adjusted": next(values), "needed": needed}) if test.pairs else test for test in tests
    ]


def _by_problem(
    results: Sequence[ProblemResult], measure: Measure, baselines: Sequence[str]
) -> dict[str, float | None]:
    """Return the mean number of each finished problem, as a logarithm for a ratio; None if it is unknown."""
    found: dict[str, list[float]] = {}
    for result in results:
        if result.is_done:
            value = measure.value(result, baselines)
            numbers = found.setdefault(result.name, [])
            if value is not None:
                numbers.append(math.log(value) if measure.scale == "ratio" else value)
    return {name: fmean(numbers) if numbers else None for name, numbers in found.items()}

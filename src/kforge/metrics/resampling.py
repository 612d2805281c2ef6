"""Bootstrap bands and paired permutation tests over problems. The same seed gives the same numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROUNDS = 2000
"""Bootstrap resamples. The ends of a 95 % band then each rest on 50 resamples, and 1,000 problems take well under a
second."""
FLIPS = 10_000
"""Random sign flips where not all can be tried: a p-value of 0.05 is then known to within 0.005."""
EXACT_PAIRS = 13
"""Most differing pairs for which all sign flips are tried: 8,192, fewer than `FLIPS`."""
FLIPS_AT_ONCE = 1000
"""Sign flips in one matrix product, which takes 8 MB for 1,000 problems."""
ALPHA = 0.05
"""Largest adjusted p-value that counts as a difference."""


class Estimate(Record):
    """A value computed from all problems, with its 95 % bootstrap band over problems."""

    value: float
    low: float
    high: float


def bands(values: NDArray[np.float64], seed: int = 0, rounds: int = ROUNDS) -> NDArray[np.float64]:
    """Return the 2.5 % and 97.5 % quantiles of the column means, as an array of two rows.

    `values` has a row for each problem. Problems are drawn with replacement. A band always contains the mean itself.
    """
    count = len(values)
    drawn = np.random.default_rng(seed).integers(0, count, (rounds, count))
    drawn += np.arange(rounds)[:, None] * count
    weights = np.bincount(drawn.ravel(), minlength=rounds * count).reshape(rounds, count)
    low, high = np.quantile(weights @ values / count, (0.025, 0.975), axis=0)
    mean = values.mean(axis=0)
    return np.stack([np.minimum(low, mean), np.maximum(high, mean)])


def mean_with_band(values: Sequence[float], seed: int = 0) -> Estimate | None:
    """Return the mean of these values with its band; None if there are none."""
    if not values:
        return None
    column = np.asarray(values, dtype=np.float64)[:, None]
    low, high = bands(column, seed)[:, 0]
    return Estimate(value=float(column.mean()), low=float(low), high=float(high))


def sign_flip_p(differences: Sequence[float], seed: int = 0) -> float:
    """Return the two-sided p-value of the paired permutation test that the mean difference is zero.

    If neither side is better, each difference could as well have the other sign. All sign flips are tried where that is
    feasible, otherwise `FLIPS` random ones. For differences of -1, 0 and 1 this is the sign test.
    """
    apart = np.asarray([each for each in differences if each], dtype=np.float64)
    if not len(apart):
        return 1.0
    observed = abs(apart.sum()) * (1 - 1e-12)  # equal sums may differ by rounding
    if len(apart) <= EXACT_PAIRS:
        flips = np.arange(2 ** len(apart))[:, None] >> np.arange(len(apart)) & 1
        return float(np.mean(np.abs((2 * flips - 1) @ apart) >= observed))
    rng, extreme = np.random.default_rng(seed), 0
    for _ in range(FLIPS // FLIPS_AT_ONCE):
        signs = 2.0 * rng.integers(0, 2, (FLIPS_AT_ONCE, len(apart))) - 1
        extreme += int(np.count_nonzero(np.abs(signs @ apart) >= observed))
    return (extreme + 1) / (FLIPS + 1)  # the data themselves are one of the flips


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for several comparisons by Holm's method, in the order given."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def least_pairs(tests: int) -> int:
    """Return how many pairs must differ, all in one direction, before any of `tests` comparisons can be significant."""
    pairs = 1
    while 2.0 ** (1 - pairs) * tests > ALPHA:
        pairs += 1
    return pairs

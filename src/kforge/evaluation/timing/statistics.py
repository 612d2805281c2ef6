"""Computes an interval from paired samples, by bootstrap medians."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kforge.evaluation.constants import FIRST_LOOK, LATER_LOOKS, RESAMPLES
from kforge.records import Interval

Samples = NDArray[np.float64]


def resampled_medians(samples: Samples, rng: np.random.Generator) -> Samples:
    """Return the medians of `RESAMPLES` bootstrap resamples."""
    picks = rng.integers(0, len(samples), size=(RESAMPLES, len(samples)))
    medians: Samples = np.median(samples[picks], axis=1)
    return medians


def interval(samples: Samples, rng: np.random.Generator) -> Interval:
    """Return the median with its bootstrap 95 % interval."""
    return _between(float(np.median(samples)), resampled_medians(samples, rng))


def speedup(log_ratios: Samples, rng: np.random.Generator) -> Interval:
    """Return the speedup of paired log-ratios log(baseline / candidate)."""
    return _between(float(np.exp(np.median(log_ratios))), np.exp(resampled_medians(log_ratios, rng)))


def chained_speedup(log_ratios: Samples, other: Samples, rng: np.random.Generator) -> Interval:
    """Return the speedup over a second baseline, known only by its own paired log-ratios log(baseline / second).

    The two measurements are independent, so their resamples are combined freely: the interval holds the noise of both.
    """
    middle = float(np.exp(np.median(log_ratios) - np.median(other)))
    return _between(middle, np.exp(resampled_medians(log_ratios, rng) - resampled_medians(other, rng)))


def widened(value: Interval, looks: int, luck: float = 0.0, allowance: float = 0.0) -> Interval:
    """Widen the interval of measurements that stop when it decides something, so that it still holds in 95 of 100
    cases.

    Each look is one more chance to be wrong. The first one may use most of the 5 %, and the later ones share the rest.
    Each width is scaled as for a normal distribution. `luck` bounds process-to-process variation, as a logarithm: how
    much faster one process of a program may stay than another one, because of where its memory lies. No repetition in
    the same two processes shows that. `allowance`, a logarithm as well: the part of the speedup that the program may
    not have earned.
    """
    scale = FIRST_LOOK if looks <= 1 else LATER_LOOKS
    below, above = (value.median / value.low) ** scale, (value.high / value.median) ** scale
    return Interval(
        median=value.median,
        low=value.median / below * math.exp(-luck - allowance),
        high=value.median * above * math.exp(luck),
    )


def half_width(value: Interval) -> float:
    """Return half the interval's width as a share of the median."""
    return (value.high - value.low) / 2 / value.median


def _between(middle: float, resamples: Samples) -> Interval:
    low, high = np.quantile(resamples, [0.025, 0.975])
    # a resample's quantile may lie a rounding error on the wrong side of the median
    return Interval(median=middle, low=min(float(low), middle), high=max(float(high), middle))

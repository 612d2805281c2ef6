"""Computes medians and their confidence intervals from timed samples, by bootstrap."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kforge.evaluation.constants import FIRST_LOOK, LATER_LOOKS, RESAMPLES
from kforge.records import Interval

Samples = NDArray[np.float64]


def resampled_medians(samples: Samples, rng: np.random.Generator) -> Samples:
    """Return the medians of RESAMPLES bootstrap resamples."""
    picks = rng.integers(0, len(samples), size=(RESAMPLES, len(samples)))
    medians: Samples = np.median(samples[picks], axis=1)
    return medians


def interval(samples: Samples, rng: np.random.Generator) -> Interval:
    """Return the median with its 95 % bootstrap interval."""
    return _between(float(np.median(samples)), resampled_medians(samples, rng))


def speedup(log_ratios: Samples, rng: np.random.Generator) -> Interval:
    """Return the speedup with its 95 % interval, from log-ratios log(baseline / candidate) of pairs."""
    return _between(float(np.exp(np.median(log_ratios))), np.exp(resampled_medians(log_ratios, rng)))


def chained_speedup(log_ratios: Samples, other: Samples, rng: np.random.Generator) -> Interval:
    """Return the candidate's speedup over a second baseline, which was timed only against the first one.

    `other` has the log-ratios log(first baseline / second baseline). The two measurements are independent, so the
    interval contains the noise of both.
    """
    middle = float(np.exp(np.median(log_ratios) - np.median(other)))
    return _between(middle, np.exp(resampled_medians(log_ratios, rng) - resampled_medians(other, rng)))


def widened(value: Interval, looks: int, variation: float = 0.0, allowance: float = 0.0) -> Interval:
    """Return the interval widened, so that it contains the true value in 95 % of cases although it was examined
    repeatedly.

    Timing stops when the interval decides something, so each of the `looks` is another chance of an error. The first
    look uses most of the 5 %, and later ones share the rest. `variation` is a logarithm that bounds process-to-process
    variation: how much faster one process may stay than another of the same program, because of where its memory lies.
    Repetitions in the same processes cannot show it. `allowance` is a logarithm that is subtracted from the lower
    bound: the part of the speedup that the program may not have earned.
    """
    scale = FIRST_LOOK if looks <= 1 else LATER_LOOKS
    below, above = (value.median / value.low) ** scale, (value.high / value.median) ** scale
    return Interval(
        median=value.median,
        low=value.median / below * math.exp(-variation - allowance),
        high=value.median * above * math.exp(variation),
    )


def half_width(value: Interval) -> float:
    """Return half the interval's width as a share of the median."""
    return (value.high - value.low) / 2 / value.median


def _between(middle: float, resamples: Samples) -> Interval:
    """Return the interval that contains the middle 95 % of the resamples."""
    low, high = np.quantile(resamples, [0.025, 0.975])
    # a resample's quantile may lie a rounding error on the wrong side of the median
    return Interval(median=middle, low=min(float(low), middle), high=max(float(high), middle))

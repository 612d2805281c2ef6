"""From paired samples to an interval: medians, resampled."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kforge.evaluation.constants import RESAMPLES
from kforge.records import Interval

Samples = NDArray[np.float64]


def resampled_medians(samples: Samples, rng: np.random.Generator) -> Samples:
    """Medians of `RESAMPLES` bootstrap resamples."""
    picks = rng.integers(0, len(samples), size=(RESAMPLES, len(samples)))
    medians: Samples = np.median(samples[picks], axis=1)
    return medians


def interval(samples: Samples, rng: np.random.Generator) -> Interval:
    """Median with its bootstrap 95 % interval."""
    return _between(float(np.median(samples)), resampled_medians(samples, rng))


def speedup(log_ratios: Samples, rng: np.random.Generator, luck: float = 0.0) -> Interval:
    """The speedup of paired log-ratios log(baseline / candidate).

    `luck` is what no repetition in the same two processes can show: how much one process of a program may be faster
    than another one for good, by where its memory came to lie. The interval is wider by it on both sides.
    """
    return _lucky(_between(float(np.exp(np.median(log_ratios))), np.exp(resampled_medians(log_ratios, rng))), luck)


def chained_speedup(log_ratios: Samples, other: Samples, rng: np.random.Generator, luck: float = 0.0) -> Interval:
    """Speedup over a second baseline, known only by its own paired log-ratios log(baseline / second).

    The two measurements are independent, so their resamples are combined freely: the interval holds the noise of both.
    """
    middle = float(np.exp(np.median(log_ratios) - np.median(other)))
    apart = _between(middle, np.exp(resampled_medians(log_ratios, rng) - resampled_medians(other, rng)))
    return _lucky(apart, luck * math.sqrt(2))


def half_width(value: Interval) -> float:
    """Half the interval's width as a share of the median."""
    return (value.high - value.low) / 2 / value.median


def _lucky(value: Interval, luck: float) -> Interval:
    return Interval(median=value.median, low=value.low * math.exp(-luck), high=value.high * math.exp(luck))


def _between(middle: float, resamples: Samples) -> Interval:
    low, high = np.quantile(resamples, [0.025, 0.975])
    # a resample's quantile may lie a rounding error on the wrong side of the median
    return Interval(median=middle, low=min(float(low), middle), high=max(float(high), middle))

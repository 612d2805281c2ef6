"""Intervals: they cover what they should, and a comparison of equals is no win."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge.evaluation.timing.statistics import chained_speedup, half_width, interval, speedup
from kforge.records import Comparison


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=60), st.integers(0, 99))
@settings(max_examples=30)
def test_an_interval_holds_its_median(values: list[float], seed: int) -> None:
    found = interval(np.asarray(values), np.random.default_rng(seed))
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_about_95_of_100_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        samples = np.log(2.0) + 0.05 * rng.standard_normal(60)
        found = speedup(samples, rng)
        covered += found.low <= 2.0 <= found.high
    assert 180 <= covered <= 200


def test_equals_are_never_called_faster() -> None:
    rng = np.random.default_rng(11)
    claims = 0
    for _ in range(200):
        found = speedup(0.03 * rng.standard_normal(60), rng)
        claims += Comparison(baseline="eager", identity="", seconds=1.0, speedup=found).finding == "faster"
    assert claims <= 1


def test_a_chain_of_ratios_multiplies_and_keeps_both_noises() -> None:
    rng = np.random.default_rng(3)
    over_eager = np.log(3.0) + 0.02 * rng.standard_normal(80)
    compile_over_eager = np.log(1.5) + 0.02 * rng.standard_normal(80)
    chained = chained_speedup(over_eager, compile_over_eager, rng)
    assert chained.low < 2.0 < chained.high
    assert half_width(chained) > half_width(speedup(over_eager, rng))


def test_a_disturbed_measurement_claims_nothing() -> None:
    found = speedup(np.log(3.0) + 0.01 * np.random.default_rng(5).standard_normal(50), np.random.default_rng(5))
    facts = {"baseline": "eager", "identity": "", "seconds": 1.0, "speedup": found}
    assert Comparison(**facts).finding == "faster"
    assert Comparison(**facts, doubt="the machine was busy").finding == "cannot tell"

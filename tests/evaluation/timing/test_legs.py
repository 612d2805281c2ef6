"""What the legs of a head-to-head decide, and what leaves it undecided."""

from __future__ import annotations

import numpy as np
import pytest

from kforge.evaluation.constants import DISPLACED_SHARE, QUIET_PAIRS
from kforge.evaluation.timing.legs import Leg, Legs
from kforge.evaluation.timing.pairs import PairedSamples

CALL = 1e-3
PAIRS = 2 * QUIET_PAIRS


def race(
    rival: float,
    *,
    leads: bool = True,
    busy: float = 0.0,
    spread: float = 0.01,
    processor: float | None = None,
    displaced: float = 0.0,
    overlap: float = 1.0,
) -> Leg:
    """A race of a challenger that takes a millisecond and a rival that takes this many times as long.

    `processor`: the same ratio by processor time, where that is another. `spread`: of the clock's logarithms.
    `overlap`: the challenger's processor time as a multiple of its busiest thread's; the rival has one thread.
    """
    chance = np.random.default_rng(1)
    noise = np.exp(spread * chance.standard_normal((2, PAIRS)))
    challenger, other = CALL * noise[0], rival * CALL * noise[1]
    by_processor = [((processor or rival) * CALL, CALL)] * PAIRS
    baseline, candidate = (other, challenger) if leads else (challenger, other)
    return Leg(
        PairedSamples(
            baseline=list(baseline),
            candidate=list(candidate),
            foreign=[busy] * PAIRS,
            processor=by_processor if leads else [pair[::-1] for pair in by_processor],
            overlap=[(1.0, overlap) if leads else (overlap, 1.0)] * PAIRS,
            busy=busy,
            displaced=displaced if leads else 0.0,
            calls_per_block=5,
        ),
        challenger_leads=leads,
    )


def both(rival: float, **facts: float) -> Legs:
    """One round: each program leads once."""
    return Legs([race(rival, **facts), race(rival, leads=False, **facts)], rounds=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "finding"), [(1.3, "faster"), (1 / 1.3, "slower"), (1.0, "undecided"), (1.05, "undecided")]
)
def test_a_clear_ratio_decides_and_a_small_one_does_not(ratio: float, finding: str) -> None:
    found = both(ratio).standing(variation=0.04)
    assert found.finding == finding
    assert found.speedup is not None
    assert found.speedup.median == pytest.approx(ratio, rel=0.02)
    assert found.pairs == 2 * PAIRS
    assert (found.rival_seconds or 0) / (found.seconds or 1) == pytest.approx(ratio, rel=0.02)


def test_what_a_program_gains_only_as_a_baseline_is_no_win() -> None:
    legs = [race(1.0), race(5.0, leads=False), race(5.0, leads=False)]
    found = Legs(legs, rounds=1).standing(variation=0.04)
    assert found.speedup is not None
    assert found.speedup.low > 2
    assert found.finding == "undecided"
    assert "where it is the candidate of a race" in found.reason
    rival = [race(1.0, leads=False), race(1 / 5), race(1 / 5)]
    assert Legs(rival, rounds=1).standing(variation=0.04).finding == "undecided"


def test_more_rounds_bound_the_variation_of_a_process() -> None:
    once = both(1.08)
    assert once.standing(variation=0.04).finding == "faster"
    assert once.standing(variation=0.08).finding == "undecided"
    assert Legs(once.legs * 4, rounds=4).standing(variation=0.08).finding == "faster"


def test_equal_programs_settle_and_unclear_ones_do_not() -> None:
    assert both(1.0).is_settled(variation=0.04)
    assert both(1.3).is_settled(variation=0.04)
    assert not both(1.08, spread=0.5).is_settled(variation=0.04)


def test_on_a_busy_machine_processor_time_decides() -> None:
    found = both(1.2, busy=0.9, spread=1.0).standing(variation=0.04)
    assert (found.finding, found.busy) == ("faster", 0.9)
    assert both(1 / 1.2, busy=0.9, spread=1.0).standing(variation=0.04).finding == "slower"
    close = both(1.05, busy=0.9, spread=1.0).standing(variation=0.0)
    assert (close.finding, close.reason) == ("faster", "")


def test_on_a_busy_machine_the_bound_is_higher() -> None:
    assert both(1.03, spread=1e-4).standing(variation=0.0).finding == "faster"
    found = both(1.03, busy=0.9).standing(variation=0.0)
    assert (found.finding, found.reason) == ("undecided", "other processes used 90% of the machine")


def test_processor_time_that_the_clock_contradicts_decides_nothing() -> None:
    """A program that waits, or works in threads one after another, uses little processor time."""
    found = both(0.5, busy=0.9, processor=2.0).standing(variation=0.04)
    assert found.finding == "undecided"
    assert "by the clock it is at 0.5" in found.reason


def test_work_that_is_handed_from_thread_to_thread_wins_nothing_on_a_busy_machine() -> None:
    found = both(1.0, busy=0.9, spread=1.0, processor=1.5, overlap=2.0).standing(variation=0.04)
    assert found.finding == "undecided"
    assert "it has more threads" in found.reason
    assert both(1.0, busy=0.9, spread=1.0, processor=1.5).standing(variation=0.04).finding == "faster", (
        "one thread each"
    )
    clear = both(3.0, busy=0.9, processor=3.0, overlap=2.0).standing(variation=0.04)
    assert clear.finding == "faster", "the clock shows it, too"


def test_helpers_of_the_slower_program_protect_it_from_nothing() -> None:
    legs = both(2.0, busy=0.9)
    (rivals,) = [leg for leg in legs.legs if not leg.challenger_leads]
    rivals.samples.has_helpers = True
    assert legs.standing(variation=0.04).finding == "faster"


def test_a_program_with_processes_of_its_own_is_not_judged_by_processor_time() -> None:
    legs = both(2.0, busy=0.9)
    legs.legs[0].samples.has_helpers = True
    assert legs.standing(variation=0.04).finding == "undecided"


def test_work_outside_timed_calls_leaves_a_win_undecided() -> None:
    found = both(2.0, displaced=4 * DISPLACED_SHARE).standing(variation=0.04)
    assert found.finding == "undecided"
    assert "outside its timed calls" in found.reason
    assert both(0.5, displaced=4 * DISPLACED_SHARE).standing(variation=0.04).finding == "slower", "it has not won"


def test_without_pairs_nothing_is_known() -> None:
    assert Legs().standing(variation=0.04).reason == "nothing could be timed"

"""Which timed pairs count, and when they have decided whether a program is faster."""

import numpy as np
import pytest

from kforge.evaluation.constants import BUSY_SHARE, FIRST_LOOK, LATER_LOOKS, QUIET_PAIRS
from kforge.evaluation.timing.pairs import PairedSamples, decides
from kforge.records import Interval

CALL = 1e-3


def paired(ratios: list[float], foreign: list[float], busy: float = 0.0) -> PairedSamples:
    """Pairs of a candidate that takes a millisecond and a baseline that takes this many times as long."""
    return PairedSamples(
        baseline=[ratio * CALL for ratio in ratios],
        candidate=[CALL] * len(ratios),
        foreign=foreign,
        busy=busy,
        decided=True,
    )


def test_pairs_timed_while_others_used_the_machine_do_not_count() -> None:
    quiet, busy = QUIET_PAIRS, 3 * QUIET_PAIRS
    samples = paired([1.5] * quiet + [0.7] * busy, [0.0] * quiet + [0.5] * busy, busy=0.4)
    assert samples.speedup().median == pytest.approx(1.5)
    assert samples.baseline_seconds() == pytest.approx(1.5 * CALL)
    assert samples.is_decided(0.04)
    assert samples.doubt is None
    assert samples.labels == ["busy_machine"]


def test_too_few_quiet_pairs_decide_nothing_and_leave_a_doubt() -> None:
    quiet, busy = QUIET_PAIRS - 1, 3 * QUIET_PAIRS
    samples = paired([1.5] * quiet + [1.5] * busy, [0.0] * quiet + [0.5] * busy, busy=0.4)
    assert not samples.is_decided(0.0)
    assert samples.doubt == "other processes used 40% of the machine during timing"


def test_a_slow_problem_on_a_quiet_machine_needs_no_more_pairs_than_it_has() -> None:
    samples = paired([1.5] * 6, [BUSY_SHARE] * 6)
    assert samples.is_decided(0.04)
    assert samples.doubt is None


def test_one_busy_moment_of_a_slow_problem_is_a_reason_to_go_on() -> None:
    samples = paired([1.5] * 6, [0.0] * 5 + [0.5])
    assert not samples.is_usable
    assert samples.doubt is None, "on the whole the machine was quiet"


@pytest.mark.parametrize(
    ("long", "times", "speedup"),
    [(10, 6, 2 / 2.9), (10, 3, 2 / 1.95), (60, 1, 2 / 2.983), (2, 6, 2 / 1.3), (1.2, 2, 2.0)],
)
def test_rare_long_blocks_count(long: float, times: int, speedup: float) -> None:
    """A program that makes the outputs of ten blocks in one of them is not faster, whatever the median says."""
    samples = paired([2.0] * 60, [0.0] * 60)
    samples.candidate[:: 60 // times] = [long * 2 * CALL] * times
    assert samples.is_uneven is (speedup < 2.0)
    assert ("uneven" in samples.labels) is samples.is_uneven
    assert samples.speedup().median == pytest.approx(speedup, rel=1e-3)
    assert samples.speedup().low <= samples.speedup().median
    assert samples.speedup().high >= 2.0, "it is not called slower"
    assert samples.candidate_seconds().median == pytest.approx(2 * CALL / speedup, rel=1e-3)


def test_a_program_with_processes_of_its_own_does_not_choose_which_blocks_count() -> None:
    """By a process that makes the machine busy whenever it makes the outputs of many blocks in one."""
    samples = paired([2.0] * 60, [0.0] * 57 + [0.5] * 3)
    samples.candidate[-3:] = [60 * CALL] * 3
    assert not samples.is_uneven
    samples.has_helpers = True
    assert samples.is_uneven


def test_an_equal_program_with_one_disturbed_block_is_not_called_slower() -> None:
    samples = paired([1.0] * 6, [0.0] * 6)
    samples.candidate[3] *= 6
    assert "uneven" not in samples.labels
    assert samples.speedup().high >= 1.0


@pytest.mark.parametrize(
    ("low", "high", "variation", "expected"),
    [
        (1.03, 1.40, 0.0, True),  # faster
        (1.03, 1.40, 0.04, False),  # one process may be faster than another by more than that
        (0.80, 0.97, 0.0, True),  # slower
        (0.99, 1.01, 0.0, True),  # neither, and no measurement would show otherwise
        (0.97, 1.05, 0.04, True),  # within what the variation of processes explains
        (0.97, 1.05, 0.0, False),
    ],
)
def test_an_interval_decides_when_no_narrower_one_inside_it_would_say_otherwise(
    low: float, high: float, variation: float, expected: bool
) -> None:
    assert decides(Interval(median=(low * high) ** 0.5, low=low, high=high), variation) is expected


def test_later_looks_widen_the_interval() -> None:
    samples = paired([1.4, 1.5, 1.6] * 10, [0.0] * 30)
    samples.looks = 1
    first = samples.speedup()
    samples.looks = 2
    later = samples.speedup()
    assert later.median == first.median
    widths = [np.log(value.high / value.low) for value in (first, later)]
    assert widths[1] / widths[0] == pytest.approx(LATER_LOOKS / FIRST_LOOK)


@pytest.mark.parametrize(("races", "most"), [(60, 2), pytest.param(300, 5, marks=pytest.mark.volume)])
def test_looking_again_and_again_claims_no_win_of_equals(races: int, most: int) -> None:
    """As a race does: the interval is looked at when half as many pairs again were timed, until it decides."""
    rng = np.random.default_rng(17)
    claims = 0
    for _ in range(races):
        noise = np.exp(0.2 * rng.standard_normal(230))
        samples = PairedSamples()
        for pairs in (20, 30, 45, 68, 101, 152, 228):
            samples.baseline = list(CALL * noise[:pairs])
            samples.candidate, samples.foreign = [CALL] * pairs, [0.0] * pairs
            samples.looks += 1
            if samples.is_decided(0.0):
                break
        claims += samples.speedup().low > 1.02
    assert claims <= most, "one look alone may claim 2.5 %"


def test_a_program_that_works_outside_its_timed_calls_claims_nothing() -> None:
    """Its own work would thin out the load that others cause around its blocks."""
    samples = paired([1.5] * 20, [0.0] * 20)
    samples.outside = 0.4
    assert samples.doubt == "the program used 40% of the machine outside its timed calls"
    samples.outside, samples.displaced = 0.0, 0.4
    assert samples.doubt == "the program did 40% of the baseline's timed work outside its timed calls"


def test_noisy_is_what_ended_undecided() -> None:
    samples = paired([1.0, 2.0] * 10, [0.0] * 20)
    assert samples.labels == []
    samples.decided = False
    assert samples.labels == ["noisy"]


SAYING_GO = 5e-4
"""Seconds that every call of a paced block takes besides."""


def paced(in_blocks: float, alone: list[float]) -> PairedSamples:
    """A baseline of 2 ms a call and a candidate that is faster by this factor in blocks, and by these one by one."""
    samples = paired([in_blocks] * 20, [0.0] * 20)
    call = in_blocks * CALL
    samples.paced = [(SAYING_GO + call, SAYING_GO + call / ratio) for ratio in alone]
    return samples


def test_a_program_that_is_as_fast_one_by_one_is_believed() -> None:
    samples = paced(2.0, [1.9, 2.0, 2.1, 2.05])
    assert not samples.gains_by_batching
    assert samples.speedup().median == pytest.approx(2.0)
    assert samples.doubt is None
    assert samples.labels == []


def test_what_a_program_gains_by_seeing_several_calls_at_once_is_not_claimed() -> None:
    samples = paced(8.0, [0.98, 1.0, 1.01, 1.02])
    assert samples.gains_by_batching
    assert samples.doubt == "calls whose inputs come one by one are at 1.00x (0.98 to 1.02), those of a block at 8.00x"
    assert samples.labels == ["one_by_one"]
    assert samples.speedup().median == pytest.approx(1.0, rel=0.02), "what a user sees, and not 8x"
    assert samples.candidate_seconds().median == pytest.approx(8 * CALL, rel=0.02)


def test_a_program_that_is_faster_one_by_one_too_claims_only_that() -> None:
    samples = paced(8.0, [1.49, 1.5, 1.5, 1.51])
    assert samples.speedup().median == pytest.approx(1.5)
    assert samples.doubt is None
    assert samples.labels == ["one_by_one"]


def test_calls_much_shorter_than_what_saying_go_costs_contradict_nothing() -> None:
    samples = paced(2.0, [2.0] * 4)
    samples.paced = [(go, go + offset * CALL) for go, offset in zip((0.1, 0.2, 0.1, 0.2), (-9, 9, -9, 9), strict=True)]
    assert not samples.gains_by_batching


def test_slow_blocks_of_the_baseline_are_no_fault_of_the_program() -> None:
    """Cause: what the baseline gained by paced calls was added to the program's time. A program of 1.5 ms was shown
    with 14.5 ms and 2.2x, where paced calls were at 9x."""
    samples = paired([32.0] * 20, [0.0] * 20)  # its blocks were disturbed
    samples.paced = [(20e-3, 2.2e-3)] * 4
    assert samples.gains_by_batching
    assert samples.speedup().median == pytest.approx(20 / 2.2)
    assert samples.candidate_seconds().median == pytest.approx(2.2e-3)
    assert samples.baseline_seconds() == pytest.approx(20e-3)


def test_a_baseline_that_gains_by_paced_calls_gives_a_slower_program_nothing() -> None:
    samples = paired([1.5] * 20, [0.0] * 20)
    samples.paced = [(CALL, 1.2 * CALL)] * 4
    assert samples.speedup().median == pytest.approx(1 / 1.2)


@pytest.mark.parametrize(("on_a_host", "claims"), [(True, False), (False, True)])
def test_on_a_host_a_win_must_be_seen_one_by_one_as_well(on_a_host: bool, claims: bool) -> None:
    samples = paced(3.0, [0.4, 0.9, 2.0, 5.0])
    samples.proves_alone = on_a_host
    assert samples.is_open_alone
    assert not samples.gains_by_batching
    assert (samples.doubt is None) is claims

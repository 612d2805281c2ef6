"""What a race makes of the blocks of two sides."""

import itertools
import secrets
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kforge import platforms
from kforge.evaluation.constants import (
    HELD_INPUTS,
    HELD_OUTPUTS,
    LEAST_PACED,
    LONGEST_BLOCK,
    MOST_PACED,
    MOST_PACED_OPEN,
    OUTSIDE_SHARE,
)
from kforge.evaluation.timing import race as timing
from kforge.evaluation.timing import untimed_work
from kforge.evaluation.timing.fresh_inputs import sets_in_memory
from kforge.evaluation.timing.pairs import PairedSamples
from kforge.evaluation.timing.race import Duration, Race
from kforge.evaluation.worker_client.client import Fault
from kforge.evaluation.worker_client.device_access import DeviceAccess
from kforge.evaluation.worker_client.orders import Took
from kforge.records.policy import TIMING_SECONDS


class Side:
    """A contestant whose blocks take a known time, and whose own clock says whatever it likes."""

    late = 0
    pid = 2**22 + 1
    """Of no process: what this one works between two looks at its clock would count as one side's."""

    def __init__(self, call: float, *, claim: float = 1.0, device_clock: bool = True) -> None:
        self.access = SimpleNamespace(
            block_seconds=1e-2,
            calls=16,
            input_bytes=1 << 20,
            device_clock=device_clock,
            draws_ahead=not device_clock,
            sees=True,
        )
        self.orders = SimpleNamespace(
            late_blocks=0, spent=0.0, worked=0.0, helped=0.0, helped_outside=0.0, has_helpers=False
        )
        self.block = self
        self._call, self._claim, self._calls, self._paced = call, claim, 0, 0
        self.alone = call
        """Seconds of a call whose inputs are the only ones there."""
        self.turns: Iterator[float] = itertools.cycle((1.0e-3, 1.2e-3, 1.1e-3))
        self.holding = self.around = 0.0

    def prepare(self, sets: list[list[torch.Tensor]], *, paced: bool = False) -> None:
        self._calls = 0 if paced else len(sets)
        self._paced = len(sets) if paced else 0

    def run_paced(self) -> list[Took]:
        return [Took(self.alone + 1e-3 + self.holding, holding=self.holding, around=self.around)] * self._paced

    def run(self) -> Took:
        """Turning to a side costs a millisecond, and half of it where there is nothing to do."""
        self.orders.late_blocks += self.late
        work = self._calls * self._call
        seconds = work + (next(self.turns) if work else 0.5e-3) + self.holding
        return Took(seconds, claimed=self._claim * work, holding=self.holding, around=self.around)


class Lenient:
    """Finds everything right."""

    trusts_baseline = True
    stocked = 0
    is_too_short = False
    varied = SimpleNamespace(applies=False, are_left=False)

    def begin(self) -> None:
        pass

    def renew_weights(self) -> None:
        pass

    def options(self) -> dict[str, object]:
        return {}

    def look(self, *_: object) -> None:
        pass

    def end(self) -> None:
        pass


CLOCK = SimpleNamespace(now=0.0)
"""What a race reads in tests with the fixture `own_clock`: a busy machine must not change how many pairs fit."""


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: CLOCK.now))


class SlowSide(Side):
    """Whose blocks take a while to prepare, and never the same time: no number of them makes a tight interval."""

    def prepare(self, sets: list[list[torch.Tensor]], *, paced: bool = False) -> None:
        super().prepare(sets, paced=paced)
        CLOCK.now += 5e-3
        self.turns = itertools.cycle((1e-3 * secrets.randbelow(20), 2e-3))


class UnsteadySide(Side):
    """A side whose calls one by one take the times of a cycle in turn, in milliseconds."""

    def __init__(self, call: float, times: tuple[float, ...]) -> None:
        super().__init__(call, device_clock=False)
        self._times = itertools.cycle(times)

    def run_paced(self) -> list[Took]:
        CLOCK.now += 5e-3
        self.alone = 1e-3 * next(self._times)
        return super().run_paced()


def raced_by(baseline: Side, candidate: Side, seconds: float = TIMING_SECONDS, output_bytes: int = 16) -> Race:
    return Race(
        baseline,  # type: ignore[arg-type]
        candidate,  # type: ignore[arg-type]
        draw=lambda _, calls: [[torch.zeros(4)]] * calls,
        output_bytes=output_bytes,
        duration=Duration(seconds=seconds),
    )


def raced(baseline: Side, candidate: Side) -> tuple[float, float]:
    samples = raced_by(baseline, candidate).run()
    return samples.speedup().median, samples.candidate_seconds().median


@pytest.mark.parametrize("claim", [0.0, 0.5, 1.0])
def test_what_turning_to_a_device_costs_is_told_by_the_trusted_sides_clock_only(claim: float) -> None:
    ratio, seconds = raced(Side(2e-3), Side(1e-3, claim=claim))
    assert ratio == pytest.approx(2.0, rel=0.01)
    assert seconds == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(("claim", "lucky"), [(1.0, False), (0.0, True)])
def test_who_is_told_quickly_gains_nothing_where_its_own_clock_is_honest(claim: float, lucky: bool) -> None:
    """The referee cannot tell a quick turn from a quick program; a device's clock can, but may lie in one direction."""
    candidate = Side(1e-3, claim=claim)
    candidate.turns = itertools.repeat(0.1e-3)
    _, seconds = raced(Side(2e-3), candidate)
    assert (seconds < 0.95e-3) is lucky
    assert lucky or seconds == pytest.approx(1e-3, rel=1e-6)


def test_turning_to_a_device_may_take_longer_and_longer() -> None:
    """Both sides pay for it alike, so it is taken off pair by pair and not on average."""
    baseline, candidate = Side(2e-3), Side(1e-3)
    baseline.turns, candidate.turns = (slower() for _ in range(2))
    race = raced_by(baseline, candidate)
    ratios = np.exp(race.run().log_ratios)
    assert ratios.max() / ratios.min() < 1.01


def test_what_turning_to_it_costs_does_not_make_the_trusted_side_vary() -> None:
    baseline = Side(2e-3)
    baseline.turns = itertools.cycle((0.2e-3, 3e-3))
    samples = raced_by(baseline, Side(1e-3)).run().baseline
    assert samples == pytest.approx([2e-3] * len(samples), rel=1e-6)


def slower() -> Iterator[float]:
    """From one millisecond on, a twentieth more every time."""
    return (1e-3 * (1 + number / 20) for number in itertools.count())


@pytest.mark.parametrize(("trusted", "blamed"), [(0, True), (1, False)])
def test_who_is_late_where_the_trusted_side_is_not_does_not_wait_for_its_device(trusted: int, blamed: bool) -> None:
    baseline, candidate = Side(2e-3), Side(1e-3)
    baseline.late, candidate.late = trusted, 1
    if not blamed:
        raced(baseline, candidate)
        return
    with pytest.raises(Fault, match="the device still worked"):
        raced(baseline, candidate)


def test_a_few_late_blocks_at_the_start_are_chance() -> None:
    """Of a race that would have ended after six pairs: it goes on until chance is out of the question."""

    class LateAtFirst(SlowSide):
        def run(self) -> Took:
            taken = super().run()
            self.orders.late_blocks = min(self.orders.late_blocks + 1, 5)
            return taken

    samples = raced_by(SlowSide(2e-3), LateAtFirst(1e-3), seconds=0.0).run()
    assert len(samples.candidate) > 6


def test_who_is_late_while_it_warms_up_is_not_blamed() -> None:
    class LateToBegin(Side):
        begun = False

        def run(self) -> Took:
            if not self.begun:
                self.begun, self.orders.late_blocks = True, 1000
            return super().run()

    raced(Side(2e-3), LateToBegin(1e-3))


@pytest.mark.parametrize("device_clock", [False, True])
def test_a_program_that_is_at_rest_sooner_gains_nothing(device_clock: bool) -> None:
    baseline, candidate = (Side(2e-3, device_clock=device_clock) for _ in range(2))
    baseline.holding, candidate.holding = 1e-3, 0.1e-3
    assert raced(baseline, candidate)[0] == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("device_clock", [False, True])
def test_a_claim_allows_for_a_program_that_answers_in_its_workers_place(device_clock: bool) -> None:
    baseline, candidate = Side(2e-3, device_clock=device_clock), Side(1e-3, device_clock=device_clock)
    plain = raced_by(baseline, candidate).run()
    baseline.around = 5e-3
    samples = raced_by(baseline, candidate).run()
    saved = baseline.around / samples.calls_per_block
    assert samples.speedup().median == pytest.approx(plain.speedup().median, rel=0.01)
    assert samples.speedup().low == pytest.approx(plain.speedup().low / (1 + saved / 1e-3), rel=0.02)


def test_short_calls_of_which_a_program_may_have_saved_as_much_prove_nothing_one_by_one() -> None:
    baseline, candidate = Side(2e-3, device_clock=False), Side(1e-3, device_clock=False)
    baseline.around = 1.5e-3
    race = raced_by(baseline, candidate)
    race.check = Lenient()  # type: ignore[assignment]
    samples = race.run()
    assert samples.one_by_one is not None
    assert samples.one_by_one.low == pytest.approx(0.8, rel=0.05)
    assert samples.one_by_one.median == pytest.approx(2.0, rel=0.05)
    assert samples.doubt is not None
    assert not samples.is_open_alone, "more calls would not tell more"


def test_blocks_are_short_where_the_program_is_far_slower_than_the_baseline() -> None:
    def calls(slow: float) -> int:
        return raced_by(Side(1e-4, device_clock=False), Side(slow, device_clock=False)).run().calls_per_block

    assert calls(1e-4) == 16, "as many as a block may have"
    assert calls(LONGEST_BLOCK / 4) == 4


def test_what_saying_go_costs_is_told_by_the_trusted_sides_clock_on_a_host_too() -> None:
    _, seconds = raced(Side(2e-3, device_clock=False), Side(1e-3, device_clock=False))
    assert seconds == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(("alone", "claimed"), [(1e-3, True), (2e-3, False)])
def test_a_faster_program_is_timed_one_by_one_as_well(alone: float, claimed: bool) -> None:
    baseline, candidate = Side(2e-3), Side(1e-3)
    candidate.alone = alone
    race = raced_by(baseline, candidate)
    race.check = Lenient()  # type: ignore[assignment]
    samples = race.run()
    assert LEAST_PACED <= len(samples.paced) <= MOST_PACED
    assert samples.gains_by_batching is not claimed
    assert (samples.doubt is None) is claimed


FASTER_IN_MOST = (0.8, 1.0, 1.6, 2.4, 2.8)
"""Times beside a baseline of 2 ms. The interval of 24 of them contains 1.00x, that of 122 does not."""


@pytest.mark.usefixtures("own_clock")
def test_paced_blocks_go_on_while_they_leave_the_result_open() -> None:
    race = raced_by(Side(2e-3, device_clock=False), UnsteadySide(1e-3, FASTER_IN_MOST))
    race.check = Lenient()  # type: ignore[assignment]
    said: list[str] = []
    race.say = said.append
    samples = race.run()
    assert MOST_PACED < len(samples.paced) < MOST_PACED_OPEN
    assert samples.one_by_one is not None
    assert samples.one_by_one.low > 1.0
    assert samples.doubt is None
    assert any("one call at a time" in line for line in said)


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize(("longest", "pairs"), [(None, MOST_PACED_OPEN), (0.3, None)], ids=["most pairs", "time is up"])
def test_paced_blocks_end_although_the_result_is_open(longest: float | None, pairs: int | None) -> None:
    race = raced_by(Side(2e-3, device_clock=False), UnsteadySide(1e-3, (1.0, 1.9, 2.1, 3.0)))
    race.check = Lenient()  # type: ignore[assignment]
    if longest is not None:
        race.longest = longest
    samples = race.run()
    assert samples.is_open_alone
    assert len(samples.paced) == pairs if pairs else MOST_PACED <= len(samples.paced) < MOST_PACED_OPEN
    assert samples.doubt is not None


def test_seconds_of_a_call_are_those_of_the_samples_that_count() -> None:
    """Cause: a program that gained by batching only was shown with the seconds of paced calls beside the speedup of
    blocks."""
    race = raced_by(Side(2e-3, device_clock=False), Side(1e-3, device_clock=False))
    race.check = Lenient()  # type: ignore[assignment]
    race.candidate.alone = 2e-3  # type: ignore[attr-defined]
    samples = race.run()
    assert samples.gains_by_batching
    ratio = samples.baseline_seconds() / samples.candidate_seconds().median
    assert ratio == pytest.approx(samples.speedup().median, rel=0.05)


def test_a_slower_program_is_not_timed_one_by_one() -> None:
    race = raced_by(Side(1e-3), Side(2e-3))
    race.check = Lenient()  # type: ignore[assignment]
    assert race.run().paced == []


@pytest.mark.usefixtures("own_clock")
def test_more_time_is_more_pairs() -> None:
    def pairs(seconds: float) -> int:
        sides = SlowSide(2e-4), SlowSide(1e-4)
        return len(raced_by(*sides, seconds=seconds).run().baseline)

    assert pairs(0.6) > pairs(0.05)


@pytest.mark.usefixtures("own_clock")
def test_a_race_goes_on_until_it_is_decided() -> None:
    said: list[str] = []
    looked: list[int] = []

    def is_decided(samples: PairedSamples) -> bool:
        looked.append(len(samples.baseline))
        return len(looked) == 3

    race = raced_by(SlowSide(2e-4), SlowSide(1e-4), seconds=0.1)
    race.longest, race.is_decided, race.say = 60.0, is_decided, said.append
    samples = race.run()
    assert samples.looks == 3
    assert samples.decided
    assert looked == sorted(set(looked)), "each look has more pairs than the one before"
    waits = [line for line in said if " so far " in line]
    assert len(waits) == 2, "what it waits for is told while it waits"
    assert all(line.startswith("0 s of at most 60 s, ") for line in waits)
    assert len(samples.foreign) == len(samples.baseline) == looked[-1]


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize(
    ("ours", "theirs", "helpers", "outside"),
    [
        (0.0, 10.0, 0.0, True),  # processors that each side uses all the time, and those of the candidate's helpers
        (100.0, 10.0, 0.0, False),  # the baseline does more
        (0.0, 0.0, 10.0, True),
    ],
)
def test_what_the_candidate_does_outside_its_blocks_is_measured(
    monkeypatch: pytest.MonkeyPatch, ours: float, theirs: float, helpers: float, outside: bool
) -> None:
    baseline, candidate = SlowSide(2e-4), SlowSide(1e-4)
    baseline.pid, candidate.pid = -1, -2
    begin = CLOCK.now

    def own(pid: int) -> float:
        return (CLOCK.now - begin) * (theirs if pid == candidate.pid else ours)

    class Helped(SimpleNamespace):
        @property
        def helped_outside(self) -> float:
            return (CLOCK.now - begin) * helpers

    orders = vars(candidate.orders)
    orders.pop("helped_outside")
    candidate.orders = Helped(**orders)
    monkeypatch.setattr(untimed_work, "own_seconds", own)
    race = raced_by(baseline, candidate, seconds=0.5)
    race.longest = 0.5
    found = race.run().outside
    assert found > OUTSIDE_SHARE if outside else found == 0.0


@pytest.mark.usefixtures("own_clock")
def test_a_slow_race_tells_which_pair_it_is_at() -> None:
    said: list[str] = []
    race = raced_by(SlowSide(2e-4), SlowSide(1e-4), seconds=1e-4)
    race.longest, race.say = 1e-4, said.append
    race.run()
    assert said == ["pair 3 of at least 6", "pair 5 of at least 6"]


@pytest.mark.usefixtures("own_clock")
def test_a_race_that_decides_nothing_ends_when_its_time_is_up() -> None:
    race = raced_by(SlowSide(2e-4), SlowSide(1e-4), seconds=0.05)
    race.longest, race.is_decided = 0.3, lambda _: False
    start = CLOCK.now
    samples = race.run()
    assert 0.3 < CLOCK.now - start < 0.4
    assert not samples.decided
    assert samples.looks == 5, "at 0.05 s, and each time half as much again: 0.075, 0.11, 0.17 and 0.25"


def test_a_block_is_no_larger_than_its_outputs_allow() -> None:
    def calls(output_bytes: int) -> int:
        return raced_by(Side(2e-4), Side(1e-4), output_bytes=output_bytes).run().calls_per_block

    assert calls(16) == 16, "as many as the device may have"
    assert calls(1 << 19) == 4, "of a mebibyte: two fifths of their size each, and a little for the inputs"


MEMORY = 149_000_000_000
"""Of an H200."""


@pytest.mark.parametrize(
    ("shape", "dtype", "output", "calls"),
    [
        ((4096, 393_216), torch.float32, 4 * 4096 * 393_216, 2),
        ((16384, 16384), torch.float32, 4 * 16384, 12),  # hardly an output: as many as the inputs alone allow
        ((256, 3, 512, 512), torch.uint8, 4 * 256 * 3 * 512 * 512, 30),
        ((2, 12288), torch.float32, 4 * 12288 * 12288, 56),
    ],
    ids=["as large as the inputs", "a reduction", "bytes to floats", "an outer product"],
)
def test_what_a_block_holds_leaves_room_to_check_it(
    shape: tuple[int, ...], dtype: torch.dtype, output: int, calls: int
) -> None:
    inputs = [torch.empty(shape, dtype=dtype, device="meta")]
    memory = SimpleNamespace(within_reach=lambda: MEMORY)
    access = DeviceAccess(platforms.find("null").adapter, memory)  # type: ignore[arg-type]
    assert sets_in_memory(inputs, output, access.input_bytes) == calls
    held = calls * (HELD_INPUTS * inputs[0].nbytes + HELD_OUTPUTS * output)
    assert held <= MEMORY / 2

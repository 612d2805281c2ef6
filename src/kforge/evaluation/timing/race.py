"""Times a candidate against a baseline, in two workers, on fresh inputs, by clocks that the candidate cannot change.
(torch)

A block is a number of calls, each on new inputs. The referee starts its clock, orders the worker to run the block, and
stops the clock when the worker reports the end. So a worker cannot change its time by changing a clock. Blocks run in
the order ABBA (baseline, candidate, candidate, baseline), so that a drift of the machine's speed affects both alike.

On a device the baseline's time is its device's clock, and the candidate's own clock counts only if it shows more than
the referee's (`block_clocks.py`). A program could send the worker's answer itself, faster than the worker's own code.
The time that this could save is measured on the baseline, and the lower bound of the speedup assumes that the program
saved all of it.

A worker is stopped whenever it has no order (`WorkerClient`). So it cannot compute before the clock starts or after it
stops, the two sides cannot disturb each other, and the checked outputs are those of the timed calls.
"""

from __future__ import annotations

import math
import os
import secrets
import statistics as plain
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation import constants
from kforge.evaluation.processes.machine_load import LoadMeter
from kforge.evaluation.timing.block_clocks import BlockClocks, around_of, at_rest_alike, must_agree
from kforge.evaluation.timing.fresh_inputs import FreshInputs, sets_in_memory
from kforge.evaluation.timing.pairs import PairedSamples
from kforge.evaluation.timing.untimed_work import UntimedWork
from kforge.evaluation.transport.shared_memory import bytes_of
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.evaluation.worker_client.orders import Took
from kforge.platforms import host
from kforge.records import Rejected
from kforge.records.policy import PATIENCE, TIMING_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.evaluation.timing.block_check import BlockCheck
    from kforge.platforms import Limit


PACED_EXAMINED = frozenset(math.ceil(constants.MOST_PACED * constants.LOOK_AGAIN**look) for look in range(6))
"""Numbers of paced pairs at which the interval is examined to decide whether to time more of them."""


@dataclass(frozen=True)
class Duration:
    """How long a race takes."""

    seconds: float = TIMING_SECONDS
    """Usual seconds of a race."""
    longest: float = PATIENCE * TIMING_SECONDS
    """Most seconds of the race, if the samples have not decided by `seconds` whether the candidate is faster."""
    is_decided: Callable[[PairedSamples], bool] = lambda _: True
    """Returns whether more samples would not change the finding."""
    say: Callable[[str], None] = lambda _: None
    """Called with a progress message when a race takes longer than `seconds`."""


class Race:
    """Times a candidate's worker against a baseline's, and checks the outputs of timed calls."""

    def __init__(
        self,
        baseline: WorkerClient,
        candidate: WorkerClient,
        *,
        draw: Callable[[int, int], list[list[Any]]],
        output_bytes: int,
        check: BlockCheck | None = None,
        limits: Callable[[], tuple[Limit, ...]] = lambda: (),
        duration: Duration | None = None,
        traced_share: float = 0.0,
    ) -> None:
        """`draw(number, calls)` returns the inputs of the calls of a block.

        `check` examines the results of each pair of blocks; it is None for a compiled baseline. `output_bytes` is the
        size of the outputs of one call. `limits` returns what slows the device down, and is called between blocks.
        `traced_share` is the number of extra blocks in which the candidate is stopped to see whose code runs, as a
        share of the pairs.
        """
        self.baseline = baseline
        self.candidate = candidate
        self.output_bytes = output_bytes
        self.check = check
        self.limits = limits
        duration = duration or Duration()
        self.seconds = duration.seconds
        self.in_blocks = self.seconds * (1 - constants.PACED_SHARE if check is not None else 1)
        """Seconds for timed blocks. The rest of `seconds` is for paced blocks."""
        self.longest = max(duration.seconds, duration.longest)
        self.is_decided = duration.is_decided
        self.say = duration.say
        self.traced_share = traced_share
        self._inputs = FreshInputs(draw, ahead=candidate.access.draws_ahead)
        self.handshake = 0.0
        self._empty_critical = 0.0
        """Processor seconds of the baseline's busiest thread in an empty block."""
        self._trusts_baseline = check is None or check.trusts_baseline
        self._clocks = BlockClocks(device_clock=baseline.access.device_clock, trusts_baseline=self._trusts_baseline)
        self._untimed = UntimedWork(baseline, candidate)
        self.chance = secrets.SystemRandom()

    def run(self) -> PairedSamples:
        """Run the race and return its samples. Raises Fault if the candidate fails, or if a checked output is wrong."""
        with _one_thread(), self._inputs:
            return self._run()

    def _run(self) -> PairedSamples:
        start = time.monotonic()
        begin, spent = start, self.candidate.orders.spent
        if self.check is not None:
            self.check.begin()
        self.handshake = self._measure_handshake()
        samples = PairedSamples(calls_per_block=self._block_size(*self._warm_up()))
        if samples.calls_per_block > max(
            constants.WARM_UPS
        ):  # their outputs need memory that was never allocated before
            self._both(self._inputs.take(samples.calls_per_block))
        self.baseline.orders.late_blocks = self.candidate.orders.late_blocks = 0  # warm-up blocks do not count
        # a program that warms up slowly must not shorten the race by that
        start = max(start, time.monotonic() - self.seconds / 2)
        load = LoadMeter(
            [os.getpid(), self.baseline.pid, self.candidate.pid], helped=lambda: self.candidate.orders.helped
        )
        first_varied = 2 * self.chance.randint(1, constants.MIN_PAIRS_SLOW // 2)
        while not self._enough(samples, time.monotonic() - start):
            order = (self.baseline, self.candidate)
            if self.chance.random() < 0.5:
                order = (order[1], order[0])
            # A B, then B A on new inputs: a drift of the machine's speed affects both sides alike
            for sides in (order, (order[1], order[0])):
                self._pair(samples, sides)
                load.mark()
            samples.foreign, samples.busy = load.shares(), load.overall
            samples.has_helpers = self.candidate.orders.has_helpers
            samples.limits.update(self.limits())
            if self.chance.random() < 2 * self.traced_share:
                self._trace_block(samples)
            if len(samples.baseline) == first_varied or self.chance.random() < 2 * constants.VARIED_SHARE:
                self._varied_block(samples)
            self._maybe_renew_weights()
        for _ in range(constants.LAST_VARIED):
            if self.check is not None and self.check.varied.are_left:
                self._varied_block(samples)
        samples.charges = self._clocks.charges()
        self._must_wait_for_its_device(len(samples.candidate))
        self._time_one_by_one(samples, until=start + self.longest)
        self._look_once_more(samples.calls_per_block)
        spent = self.candidate.orders.spent - spent
        samples.stocked = self.check.stocked if self.check is not None else 0
        # without the time of the candidate's own orders: a program must gain nothing by sleeping in one
        samples.outside = self._untimed.seconds() / (max(time.monotonic() - begin - spent, 1e-3) * host.threads())
        samples.displaced = self._displaced_work()
        return samples

    def _displaced_work(self) -> float:
        """Return the candidate's work outside timed orders as a share of the baseline's timed work; 0 on a device."""
        return 0.0 if self.check is None or self.baseline.access.device_clock else self._untimed.share()

    def _must_wait_for_its_device(self, blocks: int) -> None:
        """Raise Fault if the candidate often reports the end of a block while its device still works."""
        if self._seems_late(blocks):
            late = self.candidate.orders.late_blocks
            reason = f"the device still worked after {late} of {blocks} timed blocks were done"
            raise Fault(Rejected(rule="unbidden_work", reason=reason))

    def _seems_late(self, blocks: int) -> bool:
        """Return whether the candidate's device still works at the end of a block much more often than the baseline's.
        On a busy host both may seem to."""
        return self.candidate.orders.late_blocks - self.baseline.orders.late_blocks > constants.LATE_SHARE * blocks

    def _enough(self, samples: PairedSamples, spent: float) -> bool:
        """Return whether the race may end after `spent` seconds, and set `samples.decided`."""
        pairs = len(samples.baseline)
        if spent > self.in_blocks and pairs < constants.MIN_PAIRS_SLOW:
            self.say(f"pair {pairs + 1} of at least {constants.MIN_PAIRS_SLOW}")
        if pairs < constants.MIN_PAIRS_SLOW or (self._seems_late(pairs) and pairs < constants.LATE_BLOCKS):
            return False
        if pairs >= constants.MAX_PAIRS or spent > self.longest:
            return True
        if pairs < constants.MIN_PAIRS and samples.is_uneven:  # among few blocks a single disturbed one has much weight
            return False
        if self.check is not None and self.check.is_too_short:
            return False
        # in a short race one-time work of both sides has much weight: a longer race decides
        if self._displaced_work() > constants.DISPLACED_SHARE:
            return False
        if spent > self.in_blocks:
            samples.decided = self._is_decided_by_now(samples, spent)
        elif pairs % 10 == 0:
            enough = constants.HALF_WIDTH if pairs >= constants.MIN_PAIRS else constants.HALF_WIDTH_OF_FEW
            samples.decided = samples.is_tight(enough)
        return samples.decided

    def _is_decided_by_now(self, samples: PairedSamples, spent: float) -> bool:
        """Return whether the result is decided.

        It is examined only a few times, because each examination is another chance of a false claim, and widens the
        interval.
        """
        if spent < self.in_blocks * constants.LOOK_AGAIN**samples.looks:
            return False
        samples.looks += 1
        samples.charges = self._clocks.charges()
        if self.is_decided(samples):
            return True
        value = samples.speedup()
        so_far = f"{value.median:.2f}x so far ({value.low:.2f} to {value.high:.2f})"
        why = "too wide to decide" if samples.is_usable else "other processes use the machine"
        self.say(f"{spent:.0f} s of at most {self.longest:.0f} s, {so_far}, {why}")
        return False

    def _warm_up(self) -> tuple[float, float]:
        """Run both sides until caches, allocators and lazy builds have settled. Returns seconds per call: the lower,
        then the higher."""
        end = time.monotonic() + self.seconds / 4
        calls, faster, slower = 0, 0.0, 0.0
        for size in constants.WARM_UPS:
            if calls > 1 and time.monotonic() + size * (faster + slower) > end:
                break
            sets = self._inputs.take(min(size, self._in_flight))
            calls += len(sets)
            faster, slower = sorted(max(0.0, block.seconds - self.handshake) / len(sets) for block in self._both(sets))
        return faster, slower

    def _measure_handshake(self) -> float:
        """Return the median seconds of an empty block: the cost of starting a block."""
        taken = []
        for _ in range(constants.HANDSHAKES):
            self.baseline.block.prepare([])
            taken.append(self.baseline.block.run())
        self._empty_critical = plain.median(block.critical for block in taken)
        return plain.median(block.seconds for block in taken)

    def _block_size(self, faster: float, slower: float) -> int:
        """Return the number of calls in a block, from the seconds per call of both sides.

        A block of the faster side should last long enough to be timed. If the other side is far slower, its block must
        not take too long.
        """
        faster, slower = max(faster, 1e-6), max(slower, 1e-6)
        filled = min(self.candidate.access.block_seconds / faster, constants.LONGEST_BLOCK / slower)
        calls = max(math.ceil(filled), constants.LEAST_CALLS_PER_BLOCK)
        return min(calls, self.candidate.access.calls, self._in_flight)

    @cached_property
    def _in_flight(self) -> int:
        """Most sets of inputs, with the outputs of their calls, that fit into memory at a time."""
        return sets_in_memory(self._inputs.take(1), self.output_bytes, self.candidate.access.input_bytes)

    def _pair(self, samples: PairedSamples, order: tuple[WorkerClient, WorkerClient]) -> None:
        """Time one block of each side on the same inputs, in this order, and add the pair to the samples."""
        sets = self._inputs.take(samples.calls_per_block)
        options = self._options()
        blocks = {id(side): self._block(side, sets, options) for side in order}
        self._clocks.add(blocks[id(self.baseline)], blocks[id(self.candidate)])
        self._inputs.begin_next(self._inputs.together, samples.calls_per_block)
        if not self.baseline.access.device_clock:
            self._note_processor_time(samples, blocks[id(self.baseline)], blocks[id(self.candidate)])
        samples.baseline = [seconds / len(sets) for seconds in self._clocks.baseline_seconds()]
        samples.candidate = [seconds / len(sets) for seconds in self._clocks.candidate_seconds()]
        samples.around = self._clocks.around() / len(sets)
        if self.check is not None:
            self.check.look(sets)

    def _note_processor_time(self, samples: PairedSamples, *blocks: Took) -> None:
        """Record the processor seconds per call, less those of an empty block, which both sides have alike."""
        calls = samples.calls_per_block
        baseline, candidate = (
            max(block.critical - self._empty_critical, constants.LEAST_OF_A_BLOCK * block.critical, 1e-9) / calls
            for block in blocks
        )
        samples.processor.append((baseline, candidate))
        one, other = (block.total / block.critical if block.critical else 1.0 for block in blocks)
        samples.overlap.append((one, other))

    def _maybe_renew_weights(self) -> None:
        """Change the weights at random, so that a program can never know that it has seen the last weights."""
        if self.check is not None and self.chance.random() < constants.RENEWED_SHARE:
            self.check.renew_weights()

    def _look_once_more(self, calls: int) -> None:
        """After the timed blocks, run a random number of blocks, each with new weights, and check their outputs.

        The number is random, so that a program cannot know that it has seen the last weights.
        """
        if self.check is not None:
            for _ in range(self.chance.randint(*constants.LAST_WEIGHTS)):
                self.check.renew_weights()
                self._both(self._inputs.together(min(calls, constants.LEAST_CALLS_PER_BLOCK)))
            self.check.end()

    def _time_one_by_one(self, samples: PairedSamples, *, until: float) -> None:
        """Time a program that seems faster once more in paced blocks: a call's inputs appear only when the previous
        call is over.

        In a normal block all inputs are there at once, so a program could work on several calls together. In a paced
        block it cannot. If a few paced blocks leave it open whether the program is faster in this way, more are timed,
        at most until the monotonic clock is at `until`.
        """
        batches = samples.calls_per_block > 1 and self.candidate.access.sees
        if self.check is None or not batches or samples.speedup().low <= 1.0:
            return
        begin, around = time.monotonic(), list[float]()
        samples.proves_alone = not self.baseline.access.device_clock
        large = bytes_of(self._inputs.take(samples.calls_per_block)[0]) > constants.SMALL_INPUTS
        calls = min(constants.PACED_CALLS[large], samples.calls_per_block)
        calls = 1 if samples.baseline_seconds() > constants.SLOW_CALL else calls
        while self._goes_on_alone(samples, begin, until):
            sets = self._inputs.take(calls, self._inputs.apart)
            order = (self.candidate, self.baseline) if len(samples.paced) % 2 else (self.baseline, self.candidate)
            took, options = dict[int, list[Took]](), self._options()
            for side in order:
                side.block.prepare(sets, paced=True, **options)
                taken = side.block.run_paced()
                # the first of several calls finds the caches as the other side has left them
                took[id(side)] = taken[1:] or taken
            baseline, candidate = took[id(self.baseline)], took[id(self.candidate)]
            seconds = plain.median(at_rest_alike(candidate, baseline))
            samples.paced.append((plain.median(call.seconds for call in baseline), seconds))
            around.append(around_of(baseline, candidate, trusts_baseline=self._trusts_baseline))
            samples.around_paced = plain.median(around)
            self._inputs.begin_next(self._inputs.apart, calls)
            self.check.look(sets)
            self._maybe_renew_weights()

    def _goes_on_alone(self, samples: PairedSamples, begin: float, until: float) -> bool:
        """Return whether another pair of paced blocks is timed. The first one began at `begin`."""
        now, number = time.monotonic(), len(samples.paced)
        if number < constants.MOST_PACED:
            quick = number < constants.LEAST_PACED or now - begin < constants.PACED_SHARE * self.seconds
            return quick or samples.is_open_alone
        if not samples.proves_alone or number >= constants.MOST_PACED_OPEN or now > until:
            return False
        if number not in PACED_EXAMINED:
            return True
        if (alone := samples.one_by_one) is None or not samples.is_open_alone:
            return False
        so_far = f"one call at a time {alone.median:.2f}x so far ({alone.low:.2f} to {alone.high:.2f})"
        self.say(f"{self.longest - until + now:.0f} s of at most {self.longest:.0f} s, {so_far}, too wide to decide")
        return True

    def _trace_block(self, samples: PairedSamples) -> None:
        """Stop one block of the candidate at random moments to see whose code runs. It looks like a timed block to the
        program."""
        self.candidate.block.prepare(self._inputs.take(samples.calls_per_block), **self._options())
        samples.whereabouts += self.candidate.block.trace(constants.EXTRA_BLOCK_SAMPLES)
        if self.check is not None:  # the baseline has not made these calls
            self.check.begin()

    def _varied_block(self, samples: PairedSamples) -> None:
        """Run and check a block in which the inputs of a few calls are varied (`varied_calls.py`). Its time does not
        count, but it looks like a timed block to the program."""
        if self.check is not None and self.check.varied.applies:
            sets = self._inputs.take(samples.calls_per_block)
            if self.check.varied.put_into(sets):
                self._both(sets)

    def _options(self) -> dict[str, Any]:
        return {} if self.check is None else self.check.options()

    def _both(self, sets: list[list[Any]]) -> tuple[Took, Took]:
        """Run an untimed block of each side and check the results. Returns their times."""
        options = self._options()
        blocks = self._block(self.baseline, sets, options), self._block(self.candidate, sets, options)
        if self.check is not None:
            self.check.look(sets)
        return blocks

    def _block(self, side: WorkerClient, sets: list[list[Any]], options: dict[str, Any]) -> Took:
        """Run one block of one side, and return its times. Raises Fault if the clock of a program contradicts the
        referee's."""
        side.block.prepare(sets, **options)
        block = side.block.run()
        if side is self.candidate or not self._trusts_baseline:
            must_agree(block)
        return block


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let this process compute with one thread inside the `with` block.

    Torch's other threads would spin for a while after each operator, and take a core from the side that is timed next:
    a third of its blocks took two to four times as long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

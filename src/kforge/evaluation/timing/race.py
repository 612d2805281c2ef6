"""ABBA timing of two programs in two workers, on fresh inputs, by the referee's own clock. (torch)

A block is two or more calls where memory allows, each on new inputs. The referee starts its clock, tells the worker to
go, and stops the clock when the worker reports. So a worker cannot shorten its time by changing a clock.

The cost of starting a block is measured on the trusted side (the baseline) and subtracted from both: it is the
difference between the referee's clock and that worker's own clock, in the blocks next to a pair. On a device the
trusted side's time is its device's clock, which does not include that cost. A candidate's own clock counts only where
it shows more than the referee's: so an honest program gains nothing when it was started quickly by chance, and a
dishonest one cannot gain anything.

A program could answer in its worker's place, faster than the worker's own code. How much that could save is measured on
the trusted side as well, and every claim allows for it. A program with few threads stops sooner than the trusted side;
it is charged for the same stopping time.

A worker is held still whenever it has no order (`WorkerClient`). So nothing is computed before the clock starts or
after it stops, neither side can disturb the other, and the checked outputs are those of the timed calls.
"""

from __future__ import annotations

import itertools
import math
import os
import secrets
import statistics as plain
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation import protocol
from kforge.evaluation.processes.machine_load import LoadMeter, own_seconds
from kforge.evaluation.timing.pairs import PairedSamples
from kforge.evaluation.transport.shared_memory import bytes_of
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.evaluation.worker_client.orders import Took
from kforge.platforms import host
from kforge.records import Rejected
from kforge.records.policy import PATIENCE, TIMING_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kforge.evaluation.timing.block_check import BlockCheck
    from kforge.platforms import Limit

TIMER = (
    "referee perf_counter around blocks of calls, less what saying go costs the trusted side; "
    "that side on a device by its device's own clock, the other one where its own says more"
)


@dataclass(frozen=True)
class Duration:
    """How long a race goes on."""

    seconds: float = TIMING_SECONDS
    longest: float = PATIENCE * TIMING_SECONDS
    """At most, while the samples have not decided the question."""
    is_decided: Callable[[PairedSamples], bool] = lambda _: True
    say: Callable[[str], None] = lambda _: None
    """Told when a race goes on for longer than `seconds`."""


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
        """`draw` makes the inputs of a block from its number and its number of calls.

        `check` examines what the blocks of a pair have left; a compiled baseline needs none. Each call makes outputs of
        `output_bytes`; `limits` returns what limits the device's speed, between blocks. `traced_share`: how many
        blocks of the candidate are traced instead of timed, as a share of the pairs.
        """
        self.baseline = baseline
        self.candidate = candidate
        self.draw = draw
        self.output_bytes = output_bytes
        self.check = check
        self.limits = limits
        duration = duration or Duration()
        self.seconds = duration.seconds
        self.in_blocks = self.seconds * (1 - protocol.PACED_SHARE if check is not None else 1)
        """Seconds for blocks; the rest is for paced calls."""
        self.longest = max(duration.seconds, duration.longest)
        self.is_decided = duration.is_decided
        self.say = duration.say
        self.traced_share = traced_share
        self._numbers = itertools.count(1)
        """Numbers of the blocks whose inputs are drawn, in two threads."""
        self._ahead: Future[list[list[Any]]] | None = None
        """The inputs of the next block, drawn while the outputs of the one before are checked."""
        self._thread = ThreadPoolExecutor(1)
        """The thread that draws them."""
        self.handshake = 0.0
        self._before: dict[int, tuple[float, float]] = {}
        """Processor seconds that each side had used outside timed orders when the race began."""
        self._worked_before = 0.0
        """Processor seconds of the baseline in timed orders before the race."""
        self.blocks = {id(side): list[Took]() for side in (baseline, candidate)}
        """The timed blocks of each side."""
        self.chance = secrets.SystemRandom()

    def run(self) -> PairedSamples:
        """Run the race. Raises Fault when the candidate fails, or a checked output of a timed call is wrong."""
        with _one_thread(), self._thread:
            return self._run()

    def _run(self) -> PairedSamples:
        start = time.monotonic()
        begin, spent = start, self.candidate.orders.spent
        self._before = {id(side): self._untimed_work(side) for side in (self.baseline, self.candidate)}
        self._worked_before = self.baseline.orders.worked
        if self.check is not None:
            self.check.begin()
        self.handshake = self._measure_handshake()
        samples = PairedSamples(calls_per_block=self._block_size(*self._warm_up()))
        if samples.calls_per_block > max(
            protocol.WARM_UPS
        ):  # their outputs need memory that was never allocated before
            self._both(self._fresh(samples.calls_per_block))
        self.baseline.orders.late_blocks = self.candidate.orders.late_blocks = 0  # count only blocks that count
        # a program that warms up slowly must not shorten the race by that
        start = max(start, time.monotonic() - self.seconds / 2)
        load = LoadMeter(
            [os.getpid(), self.baseline.pid, self.candidate.pid], helped=lambda: self.candidate.orders.helped
        )
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
            self._maybe_renew_weights()
        self._must_wait_for_its_device(len(samples.candidate))
        self._time_one_by_one(samples)
        self._look_once_more(samples.calls_per_block)
        spent = self.candidate.orders.spent - spent
        samples.stocked = self.check.stocked if self.check is not None else 0
        # without the time of the candidate's own orders: a program must gain nothing by sleeping in one
        samples.outside = self._work_outside() / (max(time.monotonic() - begin - spent, 1e-3) * host.threads())
        samples.displaced = self._displaced_work()
        return samples

    def _work_outside(self) -> float:
        """Return the processor seconds that the candidate has used outside timed orders, beyond what the baseline did.

        Both sides flush caches and copy inputs there.
        """
        ours, theirs = (
            sum(
                max(0.0, now - then) for now, then in zip(self._untimed_work(side), self._before[id(side)], strict=True)
            )
            for side in (self.baseline, self.candidate)
        )
        return max(0.0, theirs - ours)

    def _displaced_work(self) -> float:
        """Return the candidate's work outside timed orders, as a share of the baseline's timed work, on a host."""
        if self.check is None or self.baseline.access.device_clock:
            return 0.0
        return self._work_outside() / max(self.baseline.orders.worked - self._worked_before, 1e-3)

    def _untimed_work(self, side: WorkerClient) -> tuple[float, float]:
        """The processor seconds outside timed orders so far: of the process, and of those that it has started."""
        return (own_seconds(side.pid) or 0.0) - side.orders.worked, side.orders.helped_outside

    def _must_wait_for_its_device(self, blocks: int) -> None:
        """Raises Fault for a program that reports that it is done while its device still works, in many blocks."""
        if self._seems_late(blocks):
            late = self.candidate.orders.late_blocks
            reason = f"the device still worked after {late} of {blocks} timed blocks were done"
            raise Fault(Rejected(rule="unbidden_work", reason=reason))

    def _seems_late(self, blocks: int) -> bool:
        """Return whether the device is late more often than the baseline's: on a busy host both seem late."""
        return self.candidate.orders.late_blocks - self.baseline.orders.late_blocks > protocol.LATE_SHARE * blocks

    def _enough(self, samples: PairedSamples, spent: float) -> bool:
        pairs = len(samples.baseline)
        if spent > self.in_blocks and pairs < protocol.MIN_PAIRS_SLOW:
            self.say(f"pair {pairs + 1} of at least {protocol.MIN_PAIRS_SLOW}")
        if pairs < protocol.MIN_PAIRS_SLOW or (self._seems_late(pairs) and pairs < protocol.LATE_BLOCKS):
            return False
        if pairs >= protocol.MAX_PAIRS or spent > self.longest:
            return True
        if pairs < protocol.MIN_PAIRS and samples.is_uneven:  # among few blocks a single disturbed one has much weight
            return False
        if self.check is not None and self.check.is_too_short:
            return False
        # in a short race one-time work of both sides has much weight: a longer race decides
        if self._displaced_work() > protocol.DISPLACED_SHARE:
            return False
        if spent > self.in_blocks:
            samples.decided = self._is_decided_by_now(samples, spent)
        elif pairs % 10 == 0:
            enough = protocol.HALF_WIDTH if pairs >= protocol.MIN_PAIRS else protocol.HALF_WIDTH_OF_FEW
            samples.decided = samples.is_tight(enough)
        return samples.decided

    def _is_decided_by_now(self, samples: PairedSamples, spent: float) -> bool:
        """Return whether the result is decided. It is checked at few moments: each check is a chance to be wrong, and
        widens the interval."""
        if spent < self.in_blocks * protocol.LOOK_AGAIN**samples.looks:
            return False
        samples.looks += 1
        if self.is_decided(samples):
            return True
        value = samples.speedup()
        so_far = f"{value.median:.2f}x so far ({value.low:.2f} to {value.high:.2f})"
        why = "too wide to decide" if samples.is_usable else "other processes use the machine"
        self.say(f"{spent:.0f} s of at most {self.longest:.0f} s, {so_far}, {why}")
        return False

    def _warm_up(self) -> tuple[float, float]:
        """Run both sides until caches, allocators and lazy builds have settled. Returns their seconds per call, the
        lower first."""
        end = time.monotonic() + self.seconds / 4
        calls, faster, slower = 0, 0.0, 0.0
        for size in protocol.WARM_UPS:
            if calls > 1 and time.monotonic() + size * (faster + slower) > end:
                break
            sets = self._fresh(min(size, self._in_flight))
            calls += len(sets)
            faster, slower = sorted(max(0.0, block.seconds - self.handshake) / len(sets) for block in self._both(sets))
        return faster, slower

    def _measure_handshake(self) -> float:
        times = []
        for _ in range(protocol.HANDSHAKES):
            self.baseline.block.prepare([])
            times.append(self.baseline.block.run().seconds)
        return plain.median(times)

    def _block_size(self, faster: float, slower: float) -> int:
        """Return the calls that fill a block of the faster side, from both sides' seconds per call; fewer where the
        other is slow."""
        faster, slower = max(faster, 1e-6), max(slower, 1e-6)
        filled = min(self.candidate.access.block_seconds / faster, protocol.LONGEST_BLOCK / slower)
        calls = max(math.ceil(filled), protocol.LEAST_CALLS_PER_BLOCK)
        return min(calls, self.candidate.access.calls, self._in_flight)

    @cached_property
    def _in_flight(self) -> int:
        return sets_in_memory(self._fresh(1), self.output_bytes, self.candidate.access.input_bytes)

    def _fresh(self, calls: int, draw: Callable[[int], list[list[Any]]] | None = None) -> list[list[Any]]:
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead.result()
        return (draw or self._draw)(calls)

    def _draw_ahead(self, draw: Callable[[int], list[list[Any]]], calls: int) -> None:
        if self.candidate.access.draws_ahead:
            self._ahead = self._thread.submit(draw, calls)

    def _draw_apart(self, calls: int) -> list[list[Any]]:
        """Draw each call's inputs from a separate seed: the inputs of one call must not reveal those of the next."""
        return [self._draw(1)[0] for _ in range(calls)]

    def _draw(self, calls: int) -> list[list[Any]]:
        return self.draw(next(self._numbers), calls)

    def _pair(self, samples: PairedSamples, order: tuple[WorkerClient, WorkerClient]) -> None:
        sets = self._fresh(samples.calls_per_block)
        options = self._options()
        for side in order:
            self.blocks[id(side)].append(self._block(side, sets, options))
        self._draw_ahead(self._draw, samples.calls_per_block)
        samples.baseline = self._seconds_a_call(self.baseline, len(sets))
        samples.candidate = self._seconds_a_call(self.candidate, len(sets))
        samples.around = plain.median(block.around for block in self.blocks[id(self.baseline)]) / len(sets)
        if self.check is not None:
            self.check.look(sets)

    def _maybe_renew_weights(self) -> None:
        """Renew the weights at random moments, so that a program can never know that it has seen the last weights."""
        if self.check is not None and self.chance.random() < protocol.RENEWED_SHARE:
            self.check.renew_weights()

    def _look_once_more(self, calls: int) -> None:
        """After the timed blocks: run some blocks with new weights each, whose outputs must be right as well.

        Their number is random, so a program cannot know that it has seen the last weights.
        """
        if self.check is not None:
            for _ in range(self.chance.randint(*protocol.LAST_WEIGHTS)):
                self.check.renew_weights()
                self._both(self._draw(min(calls, protocol.LEAST_CALLS_PER_BLOCK)))
            self.check.end()

    def _time_one_by_one(self, samples: PairedSamples) -> None:
        """Time a program that seems faster once more, call by call: a call's inputs appear only when the last call is
        over.

        A block shows all its inputs at once, so a program could work on several calls together. What it gains by that
        is missing here.
        """
        batches = samples.calls_per_block > 1 and self.candidate.access.sees
        if self.check is None or not batches or samples.speedup().low <= 1.0:
            return
        begin, number, around = time.monotonic(), 0, list[float]()
        samples.proves_alone = not self.baseline.access.device_clock
        large = bytes_of(self._fresh(samples.calls_per_block)[0]) > protocol.SMALL_INPUTS
        calls = min(protocol.PACED_CALLS[large], samples.calls_per_block)
        calls = 1 if samples.baseline_seconds() > protocol.SLOW_CALL else calls
        while number < protocol.LEAST_PACED or (
            number < protocol.MOST_PACED
            and (time.monotonic() - begin < protocol.PACED_SHARE * self.seconds or samples.is_open_alone)
        ):
            number, sets = number + 1, self._fresh(calls, self._draw_apart)
            order = (self.baseline, self.candidate) if number % 2 else (self.candidate, self.baseline)
            took, options = dict[int, list[Took]](), self._options()
            for side in order:
                side.block.prepare(sets, paced=True, **options)
                taken = side.block.run_paced()
                # the first of several finds the caches as the other side has left them
                took[id(side)] = taken[1:] or taken
            baseline, candidate = (
                took[id(self.baseline)],
                _at_rest_alike(took[id(self.candidate)], took[id(self.baseline)]),
            )
            samples.paced.append((plain.median(call.seconds for call in baseline), plain.median(candidate)))
            around.append(plain.median(call.around for call in baseline))
            samples.around_paced = plain.median(around)
            self._draw_ahead(self._draw_apart, calls)
            self.check.look(sets)
            self._maybe_renew_weights()

    def _seconds_a_call(self, side: WorkerClient, calls: int) -> list[float]:
        least, blocks, own_clock = protocol.LEAST_OF_A_BLOCK, self.blocks[id(side)], self.baseline.access.device_clock
        seconds = [block.seconds for block in blocks]
        if side is self.candidate:
            seconds = _at_rest_alike(blocks, self.blocks[id(self.baseline)])
        taken = [total - cost for total, cost in zip(seconds, self._handshakes(), strict=True)]
        if own_clock and side is self.baseline:
            taken = [block.claimed for block in blocks]
        elif own_clock:
            taken = [max(block.claimed, one) for block, one in zip(blocks, taken, strict=True)]
        return [max(one, least * total) / calls for one, total in zip(taken, seconds, strict=True)]

    def _handshakes(self) -> list[float]:
        """Return for every pair what the neighbouring blocks of the baseline took beyond the worker's own clock.

        It drifts by a third within a second, for both sides alike.
        """
        overheads = [block.seconds - block.claimed for block in self.blocks[id(self.baseline)]]
        return [plain.median(overheads[max(0, pair - 1) : pair + 2]) for pair in range(len(overheads))]

    def _trace_block(self, samples: PairedSamples) -> None:
        """Trace a block, at random among the timed ones: a program cannot know which of its blocks are traced."""
        self.candidate.block.prepare(self._fresh(samples.calls_per_block), **self._options())
        samples.whereabouts += self.candidate.block.trace(protocol.LEAST_LOOKS)
        if self.check is not None:  # the other side has not made these calls
            self.check.begin()

    def _options(self) -> dict[str, Any]:
        return {} if self.check is None else self.check.options()

    def _both(self, sets: list[list[Any]]) -> tuple[Took, Took]:
        """Run a block of each side that does not count, and check what it leaves."""
        options = self._options()
        blocks = self._block(self.baseline, sets, options), self._block(self.candidate, sets, options)
        if self.check is not None:
            self.check.look(sets)
        return blocks

    def _block(self, side: WorkerClient, sets: list[list[Any]], options: dict[str, Any]) -> Took:
        side.block.prepare(sets, **options)
        block = side.block.run()
        if side is self.candidate:
            self._corroborate(block)
        return block

    def _corroborate(self, block: Took) -> None:
        if block.claimed > block.seconds * protocol.CLOCK_TOLERANCE:
            reason = f"the worker's clock claims {block.claimed:.3g} s where the referee's saw {block.seconds:.3g} s"
            raise Fault(Rejected(rule="clock", reason=reason))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let this process compute with one thread: others would spin for a while after each operator.

    They would take a core from the side that is timed next: a third of its blocks took two to four times as long.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _at_rest_alike(blocks: Sequence[Took], trusted: Sequence[Took]) -> list[float]:
    """Return the seconds of each block, charged for at least as long a stop as the trusted side needs."""
    usual = plain.median(block.holding for block in trusted)
    return [block.seconds + max(0.0, usual - block.holding) for block in blocks]


def sets_in_memory(inputs: list[Any], output_bytes: int, room: int = protocol.MAX_INPUT_BYTES) -> int:
    """Return how many sets of inputs like these fit into memory at a time, with the outputs of a call on each.

    The room is given for outputs as large as the inputs. Larger ones are counted by their share of what a call holds.
    """
    of_inputs = bytes_of(inputs)
    held = protocol.HELD_INPUTS * of_inputs + protocol.HELD_OUTPUTS * output_bytes
    return max(1, room // max(1, of_inputs, held // (protocol.HELD_INPUTS + protocol.HELD_OUTPUTS)))

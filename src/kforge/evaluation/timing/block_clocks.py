"""Decides which seconds count for the timed blocks of a race: by the referee's clock, or by a worker's own.

The cost of starting a block is measured on the baseline, which is trusted: it is the difference between the referee's
clock and the worker's clock, as a median over neighbouring blocks. It is subtracted from the referee's seconds of both
sides. On a device, the baseline's time is read from its device's clock, which does not contain that cost. A candidate's
own clock counts only if it shows more than the referee's: so an honest program gains nothing from a start that was
quick by chance, and a dishonest one gains nothing by a false clock.

In a head-to-head the baseline is a program, too, and is not trusted (`trusts_baseline`). Then its own clock counts as a
candidate's does, and the cost of starting a block is the lower of what the two sides' clocks say.

A program with few threads is stopped sooner than the baseline. So a block that was stopped sooner than the baseline
usually is gets the missing time added. On the host this is done for the baseline's blocks as well, so that a program
that is timed against itself has a speedup of 1: on a busy machine these times scatter by a third of a block. A claimed
speedup does not rest on what was added to the baseline: `charges` returns how much of each ratio that is.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from kforge.evaluation.constants import CLOCK_TOLERANCE, LEAST_OF_A_BLOCK
from kforge.evaluation.worker_client.client import Fault
from kforge.records import Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.evaluation.worker_client.orders import Took

TIMER = (
    "the referee's perf_counter around blocks of calls, less the cost of starting a block, which is measured on the "
    "baseline; on a device, the baseline's device clock, and the candidate's own clock where it shows more"
)
"""Description of the clock, for receipts."""


class BlockClocks:
    """Collects the times of all pairs of blocks, and computes the seconds that are used for the speedup."""

    def __init__(self, *, device_clock: bool, trusts_baseline: bool = True) -> None:
        """`device_clock`: whether workers time their blocks by their device's clock. `trusts_baseline`: whether the
        baseline is the reference, and not another program."""
        self._device_clock = device_clock
        self._trusts_baseline = trusts_baseline
        self._baseline: list[Took] = []
        self._candidate: list[Took] = []

    def add(self, baseline: Took, candidate: Took) -> None:
        """Add the two blocks of a pair."""
        self._baseline.append(baseline)
        self._candidate.append(candidate)

    def baseline_seconds(self) -> list[float]:
        """Return for each block of the baseline the seconds that are used for the speedup."""
        if self._device_clock and self._trusts_baseline:
            return _at_least([block.claimed for block in self._baseline], self._by_referee)
        if self._device_clock:
            return self._own_clock_or_more(self._baseline)
        return self._baseline_from(at_rest_alike(self._baseline, self._baseline))

    def candidate_seconds(self) -> list[float]:
        """Return for each block of the candidate the seconds that are used for the speedup."""
        if not self._device_clock:
            return self._candidate_from(at_rest_alike(self._baseline, self._baseline))
        return self._own_clock_or_more(self._candidate)

    def charges(self) -> list[float]:
        """Return for each pair how much the logarithm of its ratio falls if stopping time is added to the candidate's
        blocks only. Zeros on a device, where none is added to the baseline's."""
        if self._device_clock:
            return [0.0] * len(self._baseline)
        alike, alone = (
            self._log_ratios(at_rest_alike(self._baseline, self._baseline)),
            self._log_ratios(self._by_referee),
        )
        return [one - other for one, other in zip(alike, alone, strict=True)]

    def around(self) -> float:
        """Return the median seconds that the baseline worker's own code takes before and after the calls of a block. If
        the baseline is not trusted, the candidate's are used where that is less."""
        return around_of(self._baseline, self._candidate, trusts_baseline=self._trusts_baseline)

    @property
    def _by_referee(self) -> list[float]:
        """The seconds of the baseline's blocks by the referee's clock."""
        return [block.seconds for block in self._baseline]

    def _own_clock_or_more(self, blocks: list[Took]) -> list[float]:
        """Return for each block of a side the seconds by its worker's own clock, or those by the referee's clock if
        they are more."""
        seconds = at_rest_alike(blocks, self._baseline)
        taken = self._without_the_start(seconds, self._by_referee)
        return _at_least([max(block.claimed, one) for block, one in zip(blocks, taken, strict=True)], seconds)

    def _log_ratios(self, trusted: list[float]) -> list[float]:
        """Return the logarithm of each pair's ratio. `trusted` has the seconds of the baseline's blocks."""
        pairs = zip(self._baseline_from(trusted), self._candidate_from(trusted), strict=True)
        return [math.log(baseline / candidate) for baseline, candidate in pairs]

    def _baseline_from(self, trusted: list[float]) -> list[float]:
        """Return the baseline's seconds without the cost of starting. `trusted` has the seconds of its blocks."""
        return _at_least(self._without_the_start(trusted, trusted), trusted)

    def _candidate_from(self, trusted: list[float]) -> list[float]:
        """Return the candidate's seconds without the cost of starting. `trusted` has those of the baseline's blocks."""
        seconds = at_rest_alike(self._candidate, self._baseline)
        return _at_least(self._without_the_start(seconds, trusted), seconds)

    def _without_the_start(self, seconds: list[float], trusted: list[float]) -> list[float]:
        """Return the seconds less the cost of starting each block. `trusted` has the seconds of the baseline's
        blocks, from which the cost is computed."""
        return [total - cost for total, cost in zip(seconds, self._starts(trusted), strict=True)]

    def _starts(self, trusted: list[float]) -> list[float]:
        """Return the cost of starting a block for each pair: the median over the baseline's blocks of this pair and of
        the pairs before and after it. If the baseline is not trusted, the candidate's blocks are used where that is
        less.

        Only near blocks count, because the cost drifts by a third within a second, for both sides alike.
        """
        costs = _medians_nearby(_overheads(trusted, self._baseline))
        if self._trusts_baseline:
            return costs
        others = _medians_nearby(_overheads(at_rest_alike(self._candidate, self._baseline), self._candidate))
        # a worker that overstates its time would make them negative
        return [max(0.0, min(pair)) for pair in zip(costs, others, strict=True)]


def around_of(baseline: Sequence[Took], candidate: Sequence[Took], *, trusts_baseline: bool) -> float:
    """Return the median seconds of a worker's own code around the calls, as a trusted baseline or both sides say."""
    shown = statistics.median(block.around for block in baseline)
    return shown if trusts_baseline else min(shown, statistics.median(block.around for block in candidate))


def _overheads(seconds: Sequence[float], blocks: Sequence[Took]) -> list[float]:
    """Return for each block how much more its `seconds` are than its worker's clock shows."""
    return [total - block.claimed for total, block in zip(seconds, blocks, strict=True)]


def _medians_nearby(numbers: Sequence[float]) -> list[float]:
    """Return for each number the median of the one before, itself, and the one after."""
    return [statistics.median(numbers[max(0, index - 1) : index + 2]) for index in range(len(numbers))]


def _at_least(taken: list[float], seconds: list[float]) -> list[float]:
    """Return `taken`, with each number raised to at least the share LEAST_OF_A_BLOCK of the block's `seconds`.

    `taken` is without the cost of starting a block, and on a busy machine that cost may be measured too high.
    """
    return [max(one, LEAST_OF_A_BLOCK * total) for one, total in zip(taken, seconds, strict=True)]


def at_rest_alike(blocks: Sequence[Took], trusted: Sequence[Took]) -> list[float]:
    """Return the seconds of each block. If it was stopped sooner than the blocks of the `trusted` side are in the
    median, the missing time is added."""
    usual = statistics.median(block.holding for block in trusted)
    return [block.seconds + max(0.0, usual - block.holding) for block in blocks]


def must_agree(block: Took) -> None:
    """Raise Fault if the worker's clock shows clearly more time than the referee's."""
    if block.claimed > block.seconds * CLOCK_TOLERANCE:
        reason = f"the worker's clock shows {block.claimed:.3g} s, but the referee's clock only {block.seconds:.3g} s"
        raise Fault(Rejected(rule="clock", reason=reason))

"""Decides which seconds count for the timed blocks of a race: by the referee's clock, or by a worker's own.

The cost of starting a block is measured on the baseline, which is trusted: it is the difference between the referee's
clock and the worker's clock in neighbouring blocks. It is subtracted from both sides. On a device, the baseline's time
is its device's clock, which does not contain that cost. A candidate's own clock counts only if it shows more than the
referee's: so an honest program gains nothing from a start that was quick by chance, and a dishonest one gains nothing
by a false clock.

A program with few threads is stopped sooner than the baseline. It is charged for the time that stopping the baseline
usually takes. The baseline is charged alike, so that a program is as fast as itself: on a busy machine these times
scatter by a third of a block. A claim does not rest on the baseline's charge (`charges`).
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
    """The times of all pairs of blocks. Computes from them the seconds that are used for the speedup."""

    def __init__(self, *, device_clock: bool) -> None:
        """`device_clock`: whether workers time their blocks by their device's clock."""
        self._device_clock = device_clock
        self._baseline: list[Took] = []
        self._candidate: list[Took] = []

    def add(self, baseline: Took, candidate: Took) -> None:
        """Add the two blocks of a pair."""
        self._baseline.append(baseline)
        self._candidate.append(candidate)

    def baseline_seconds(self) -> list[float]:
        """Return for each block of the baseline the seconds that are used for the speedup."""
        if self._device_clock:
            return _at_least([block.claimed for block in self._baseline], self._trusted)
        return self._baseline_from(at_rest_alike(self._baseline, self._baseline))

    def candidate_seconds(self) -> list[float]:
        """Return for each block of the candidate the seconds that are used for the speedup."""
        if not self._device_clock:
            return self._candidate_from(at_rest_alike(self._baseline, self._baseline))
        seconds = at_rest_alike(self._candidate, self._baseline)
        taken = self._without_the_start(seconds, self._trusted)
        return _at_least([max(block.claimed, one) for block, one in zip(self._candidate, taken, strict=True)], seconds)

    def charges(self) -> list[float]:
        """Return for each pair the logarithm by which its ratio is lower if only the candidate is charged for the time
        that stopping usually takes. Zeros on a device, where the baseline is never charged."""
        if self._device_clock:
            return [0.0] * len(self._baseline)
        alike, alone = self._log_ratios(at_rest_alike(self._baseline, self._baseline)), self._log_ratios(self._trusted)
        return [one - other for one, other in zip(alike, alone, strict=True)]

    def around(self) -> float:
        """Return the median seconds that the baseline worker's own code takes around the calls of a block."""
        return statistics.median(block.around for block in self._baseline)

    @property
    def _trusted(self) -> list[float]:
        """The seconds of the baseline's blocks by the referee's clock."""
        return [block.seconds for block in self._baseline]

    def _log_ratios(self, trusted: list[float]) -> list[float]:
        """Return the logarithm of each pair's ratio. `trusted` are the seconds of the baseline's blocks."""
        pairs = zip(self._baseline_from(trusted), self._candidate_from(trusted), strict=True)
        return [math.log(baseline / candidate) for baseline, candidate in pairs]

    def _baseline_from(self, trusted: list[float]) -> list[float]:
        """Return the baseline's seconds without the cost of starting. `trusted` are those of its blocks."""
        return _at_least(self._without_the_start(trusted, trusted), trusted)

    def _candidate_from(self, trusted: list[float]) -> list[float]:
        """Return the candidate's seconds without the cost of starting. `trusted` are those of the baseline's blocks."""
        seconds = at_rest_alike(self._candidate, self._baseline)
        return _at_least(self._without_the_start(seconds, trusted), seconds)

    def _without_the_start(self, seconds: list[float], trusted: list[float]) -> list[float]:
        """Return the seconds less the cost of starting each block, as the baseline's seconds `trusted` show it."""
        return [total - cost for total, cost in zip(seconds, self._starts(trusted), strict=True)]

    def _starts(self, trusted: list[float]) -> list[float]:
        """Return the cost of starting a block for each pair: the median over the baseline's blocks next to it.

        The cost drifts by a third within a second, for both sides alike.
        """
        overheads = [total - block.claimed for total, block in zip(trusted, self._baseline, strict=True)]
        return [statistics.median(overheads[max(0, pair - 1) : pair + 2]) for pair in range(len(overheads))]


def _at_least(taken: list[float], seconds: list[float]) -> list[float]:
    """Return `taken`, each number raised to at least the share LEAST_OF_A_BLOCK of the block's `seconds`.

    The cost of starting a block was subtracted from `taken`, which may leave too little.
    """
    return [max(one, LEAST_OF_A_BLOCK * total) for one, total in zip(taken, seconds, strict=True)]


def at_rest_alike(blocks: Sequence[Took], trusted: Sequence[Took]) -> list[float]:
    """Return the seconds of each block, with a stopping time of at least the trusted side's median."""
    usual = statistics.median(block.holding for block in trusted)
    return [block.seconds + max(0.0, usual - block.holding) for block in blocks]


def must_agree(block: Took) -> None:
    """Raise Fault if the worker's clock shows clearly more time than the referee's."""
    if block.claimed > block.seconds * CLOCK_TOLERANCE:
        reason = f"the worker's clock shows {block.claimed:.3g} s, but the referee's clock only {block.seconds:.3g} s"
        raise Fault(Rejected(rule="clock", reason=reason))

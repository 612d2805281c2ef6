"""Decides which seconds count for the timed blocks of a race: by the referee's clock, or by a worker's own.

The cost of starting a block is measured on the baseline, which is trusted: it is the difference between the referee's
clock and the worker's clock in neighbouring blocks. It is subtracted from both sides. On a device, the baseline's time
is its device's clock, which does not contain that cost. A candidate's own clock counts only if it shows more than the
referee's: so an honest program gains nothing from a start that was quick by chance, and a dishonest one gains nothing
by a false clock.

A program with few threads is stopped sooner than the baseline. It is charged for the same stopping time.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from kforge.evaluation.constants import CLOCK_TOLERANCE, LEAST_OF_A_BLOCK
from kforge.evaluation.worker_client.client import Fault
from kforge.records import Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.evaluation.worker_client.orders import Took

TIMER = (
    "referee perf_counter around blocks of calls, less what saying go costs the trusted side; "
    "that side on a device by its device's own clock, the other one where its own says more"
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
        seconds = [block.seconds for block in self._baseline]
        if self._device_clock:
            return _at_least([block.claimed for block in self._baseline], seconds)
        return _at_least(self._without_the_start(seconds), seconds)

    def candidate_seconds(self) -> list[float]:
        """Return for each block of the candidate the seconds that are used for the speedup."""
        seconds = at_rest_alike(self._candidate, self._baseline)
        taken = self._without_the_start(seconds)
        if self._device_clock:
            taken = [max(block.claimed, one) for block, one in zip(self._candidate, taken, strict=True)]
        return _at_least(taken, seconds)

    def around(self) -> float:
        """Return the median seconds that the baseline worker's own code takes around the calls of a block."""
        return statistics.median(block.around for block in self._baseline)

    def _without_the_start(self, seconds: list[float]) -> list[float]:
        """Return the seconds less the cost of starting each block."""
        return [total - cost for total, cost in zip(seconds, self._starts(), strict=True)]

    def _starts(self) -> list[float]:
        """Return the cost of starting a block for each pair: the median over the baseline's blocks next to it.

        The cost drifts by a third within a second, for both sides alike.
        """
        overheads = [block.seconds - block.claimed for block in self._baseline]
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
        reason = f"the worker's clock claims {block.claimed:.3g} s where the referee's saw {block.seconds:.3g} s"
        raise Fault(Rejected(rule="clock", reason=reason))

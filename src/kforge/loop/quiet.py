"""Waits for a moment in which other processes leave the machine alone, after a measurement that they disturbed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kforge.evaluation.constants import BUSY_SHARE
from kforge.evaluation.processes.machine_load import LoadSnapshot, foreign_share
from kforge.records import HeadToHead

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.records import Evaluation

LABEL = "measured_again"
"""Label of an evaluation that was repeated in a quieter moment, because other processes disturbed the first one."""
PATIENCE = 3.0
"""Longest wait, as a multiple of the longest timing of a program: 30 s as a rule. A machine that is busy for longer is
busy for hours, and the head-to-head has its own way of measuring there."""
BUDGET_SHARE = 0.05
"""Longest wait as a share of a run's budget of time, so that waiting never uses it up."""
LOOK_SECONDS = 0.5
"""Length of one look at the machine: Linux counts processor time in ticks of ten milliseconds."""


def look(seconds: float) -> float:
    """Return the share of the machine that is used while kforge itself does nothing; 0 where the kernel does not say.

    The judge's processes are idle then, so what is used belongs to others.
    """
    before = LoadSnapshot.take(())
    time.sleep(seconds)
    return min(1.0, foreign_share(before, LoadSnapshot.take(())))


class QuietMoments:
    """Waits for a quiet moment within a time limit, and reports it. With a limit of zero it never waits."""

    def __init__(
        self,
        longest_timing: float = 0.0,
        budget_seconds: float = 0.0,
        watch: Callable[[str], None] = lambda _: None,
        look: Callable[[float], float] = look,
    ) -> None:
        """`longest_timing`: most seconds for which a program is timed. `budget_seconds`: the run's budget of time; 0
        means none. `look`: returns the share of the machine that others use during a given number of seconds."""
        seconds = PATIENCE * longest_timing
        self._seconds = min(seconds, BUDGET_SHARE * budget_seconds) if budget_seconds else seconds
        self._watch = watch
        self._look = look
        self._was_in_vain = False

    def wait(self) -> float:
        """Wait until others use little of the machine, or the time is up. Returns the share that they used last.

        After a wait that ran out of time, each call takes only one look, until a look finds the machine quiet.
        """
        if not self._seconds:
            return 0.0
        begin = time.monotonic()
        share = self._look(LOOK_SECONDS)
        while share > BUSY_SHARE and not self._was_in_vain:
            if time.monotonic() - begin >= self._seconds:
                self._watch(f"going on beside other processes, which use {share:.0%} of the machine")
                self._was_in_vain = True
                return share
            used = f"other processes use {share:.0%} of the machine"
            self._watch(f"waiting for a quieter moment: {used}, at most {self._seconds:.0f} s")
            share = self._look(LOOK_SECONDS)
        self._was_in_vain = share > BUSY_SHARE
        return share

    def came(self) -> bool:
        """Wait, and return whether others leave the machine alone now. False if the time limit is zero."""
        return bool(self._seconds) and self.wait() <= BUSY_SHARE


def is_disturbed(found: Evaluation | HeadToHead) -> bool:
    """Return whether other processes are why a measurement says nothing certain."""
    if isinstance(found, HeadToHead):
        return found.finding == "undecided" and found.busy > BUSY_SHARE
    compared = found.correct.comparisons if found.correct is not None else ()
    return "busy_machine" in found.labels and bool(compared) and compared[0].doubt is not None

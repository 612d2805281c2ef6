"""Whose kernels do the work: what a worker says that its device ran, as far as the referee's clock agrees.

A device runs what it was given, and from outside nobody sees what that is. The worker watches it by torch's profiler,
in the same process as the program; so what it tells is a claim. The outputs of the watched calls are checked as any,
and their kernels must account for the time that a call took when it was timed: a program that hides a library's kernels
has too few, and one that only behaves while it is watched has too many. What a program forges in full is not found;
reading its source shows that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from kforge.evaluation.protocol import HOST_SECONDS, SEEN_SHARE, WATCHED_SLACK, WATCHED_TIMES
from kforge.records import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.platforms import KernelOwner

SHOWN_NAME = 120
"""Characters of a kernel's name in a reason."""


@dataclass(frozen=True)
class Seen:
    """What the device ran in a watched block."""

    kernels: Sequence[tuple[str, int, float]]
    """Name, launches and seconds."""
    busy: float
    calls: int

    def census(self, owner: Callable[[str], KernelOwner]) -> Trace:
        """Whose the device's time was. Copies are nobody's, unless a program does little else.

        What runs beside a library's kernel, on another stream, adds nothing to the program's share: it may only wait.
        """
        spent: Counter[str] = Counter()
        for name, _, seconds in self.kernels:
            spent[owner(name)] += round(seconds * 1e9)
        authored, library, copies = (spent[kind] for kind in ("authored", "library", "copy"))
        authored = min(authored, max(0, round(self.busy * 1e9) - library))
        if copies > authored + library:
            library, copies = library + copies, 0
        return Trace(authored=authored, library=library, neither=copies, unit="nanoseconds")

    def doubt(self, timed: Sequence[float]) -> str | None:
        """Why this is not what the device did when the program was timed, at these seconds a call; None if it is."""
        if not self.kernels:
            return "nothing of it was seen on the device"
        busy, launches = self.busy / self.calls, sum(count for _, count, _ in self.kernels) / self.calls
        usual, quickest = median(timed), min(timed)
        if busy > WATCHED_TIMES * usual + WATCHED_SLACK:
            return f"its kernels took {busy:.3g} s a call while they were watched, and whole calls {usual:.3g} s before"
        # a program that launches little kernels waits for its host most of the time, and rightly; a busy host adds to
        # that, but hardly to every call
        if busy < SEEN_SHARE * quickest and quickest - busy > HOST_SECONDS * (launches + 1):
            return f"the kernels that were seen account for {busy:.3g} of {quickest:.3g} s a call"
        return None

    def foremost(self, owner: Callable[[str], KernelOwner]) -> str:
        """The kernel of somebody else with the most time, in a few words for a reader; empty where there is none."""
        others = [(seconds, name) for name, _, seconds in self.kernels if owner(name) != "authored"]
        return " ".join(max(others)[1].split())[:SHOWN_NAME] if others else ""

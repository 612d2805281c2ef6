"""Decides whose kernels do the work: by what a worker reports that its device ran, checked by the referee's clock.

From outside the process, a device's kernels cannot be seen. The worker watches them by torch's profiler, in the same
process as the program, so its report is only a claim. The outputs of the watched calls are checked as always, and their
kernels must account for the time that a call took when it was timed: a program that hides a library's kernels has too
little time in kernels, and one that behaves differently while it is watched has too much. A report that is forged in
full is not detected; reading the program's source shows that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from kforge.evaluation.constants import HOST_SECONDS, SEEN_SHARE, WATCHED_SLACK, WATCHED_TIMES
from kforge.records import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.platforms import KernelOwner

SHOWN_NAME = 120
"""Most characters of a kernel's name in a reason."""


@dataclass(frozen=True)
class Seen:
    """What the device ran in a watched block."""

    kernels: Sequence[tuple[str, int, float]]
    """Name, launches and seconds of each kernel."""
    busy: float
    calls: int

    def census(self, owner: Callable[[str], KernelOwner]) -> Trace:
        """Return whose the device's time was. Copies do not count, unless a program does little else.

        A kernel that runs beside a library's kernel, on another stream, adds nothing to the program's share: it may
        only wait.
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
        """Why this is not what the device did when the program was timed, at these seconds per call; None if it is."""
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
        """The kernel with the most time that is not the program's own, by a short name; empty if all are its own."""
        others = [(seconds, name) for name, _, seconds in self.kernels if owner(name) != "authored"]
        return " ".join(max(others)[1].split())[:SHOWN_NAME] if others else ""

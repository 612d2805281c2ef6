"""Finds out whose kernels do the work on a device, from what a worker reports, checked against the referee's clock.

The kernels of a device cannot be seen from outside the process. The worker records them by torch's profiler, in the
program's own process, so its report may be false. The outputs of the recorded calls are checked as always. The kernels
must also fit the time of a timed call: a program that hides a library's kernels has too little kernel time, and a
program that behaves differently while it is recorded has too much. A completely forged report is not detected; reading
the program's source shows that.
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
    """What a worker reports that its device ran in a recorded block."""

    kernels: Sequence[tuple[str, int, float]]
    """Name, launches and seconds of each kernel."""
    busy: float
    """Seconds in which at least one kernel ran."""
    calls: int
    """Number of calls in the block."""

    def census(self, owner: Callable[[str], KernelOwner]) -> Trace:
        """Return the device time of the program's own kernels, of library kernels and of copies.

        Copies count as neither, unless they take more time than all kernels: then they count as library.

        A kernel of the program that runs at the same time as a library's kernel adds nothing to the program's share: it
        might only wait.
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
        """Return why these kernels are not those of the timed calls; None if they may be. `timed` has seconds per timed
        call."""
        if not self.kernels:
            return "nothing of it was seen on the device"
        busy, launches = self.busy / self.calls, sum(count for _, count, _ in self.kernels) / self.calls
        usual, quickest = median(timed), min(timed)
        if busy > WATCHED_TIMES * usual + WATCHED_SLACK:
            return f"its kernels took {busy:.3g} s a call while they were watched, and whole calls {usual:.3g} s before"
        # an honest program with small kernels waits for its host most of the time; a busy host makes that longer, but
        # hardly in every call, so the quickest call is used
        if busy < SEEN_SHARE * quickest and quickest - busy > HOST_SECONDS * (launches + 1):
            return f"the kernels that were seen account for {busy:.3g} of {quickest:.3g} s a call"
        return None

    def foremost(self, owner: Callable[[str], KernelOwner]) -> str:
        """Return the name of the kernel with the most time that is not the program's own, shortened; empty if there is
        none."""
        others = [(seconds, name) for name, _, seconds in self.kernels if owner(name) != "authored"]
        return " ".join(max(others)[1].split())[:SHOWN_NAME] if others else ""

"""Records of a profile: where a program's time goes, and the least time that the device allows."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kforge.records.device import Peaks
from kforge.records.numbers import Amount, Count, Finite, Positive
from kforge.records.record import Record


class HotSpot(Record):
    """One operator or kernel in a profile."""

    name: str
    calls: Count
    """How often the operator or kernel ran in one call of the module."""
    seconds: Amount
    """Seconds of the operator or kernel itself, without what it calls, in one call of the module."""
    share: Amount
    """Share of the profiled time, between 0 and 1."""


class Span(Record):
    """One kernel or operator in the timeline of a call."""

    name: str
    start: Amount
    """Seconds after the first span of the call began."""
    seconds: Amount


class KernelCounters(Record):
    """Hardware counters of one kernel. A number that was not measured is missing. Shares are between 0 and 1."""

    name: str
    launches: Count
    seconds: Amount
    """Total seconds of all launches of the kernel."""
    share: Amount
    """Share of the time of all counted kernels."""
    figures: dict[str, Finite] = Field(default_factory=dict)
    """Numbers by the names in `profiling/counters.py`."""
    stalls: dict[str, Finite] = Field(default_factory=dict)
    """For each stall reason, its share of the time that warps are resident."""
    pipes: dict[str, Finite] = Field(default_factory=dict)
    """For each kind of arithmetic unit, the share of its peak rate."""
    limits: tuple[str, ...] = ()
    """What prevents more warps from being resident, such as registers."""


class SourceLine(Record):
    """Samples in one line of a kernel's source."""

    function: str
    """The function that was called, into which the line's own function may be inlined."""
    line: Count
    """Line of the source string that was compiled, from 1."""
    text: str
    share: Amount
    """Share of all samples, between 0 and 1."""


class SourceLoop(SourceLine):
    """Samples in one loop of a kernel's source, without those in loops inside it."""

    last: Count
    """The loop's last line."""
    report: str = ""
    """What the compiler says about the loop's vectorization; empty if it says nothing."""


class AuthoredCode(Record):
    """Where the time goes inside the kernels that a program has compiled, by samples of its program counters."""

    samples: Count
    """All samples of running threads, inside the program's kernels and elsewhere."""
    share: Amount
    """Share of the samples that were in the program's own kernels."""
    loops: tuple[SourceLoop, ...] = ()
    lines: tuple[SourceLine, ...] = ()
    registers: dict[str, Amount] = Field(default_factory=dict)
    """Of the samples in kernels: the share of instructions that use each kind of registers."""
    elsewhere: dict[str, Amount] = Field(default_factory=dict)
    """Share of the samples in other libraries, by file name."""
    counters: dict[str, Amount] = Field(default_factory=dict)
    """Events of the processor in one call, by name: cycles, instructions, cache misses, mispredicted branches."""
    uncounted: str = ""
    """Why no events were counted; empty if some were."""
    missing: str = ""
    """What could not be found out, and why; empty if nothing is missing."""


BELIEVABLE_SHARE = 1.2
"""A share of the roofline above this shows that the roofline is wrong (data in a cache, peaks measured on a busy
machine), not that the program cannot be improved."""


class Roofline(Record):
    """The least time of a call that the measured peak rates of a device allow."""

    peaks: Peaks
    memory_seconds: Amount
    """Least seconds to move the data."""
    compute_seconds: Amount
    """Least seconds for the arithmetic."""

    @property
    def floor_seconds(self) -> float:
        """Least seconds of a call: the larger of `memory_seconds` and `compute_seconds`."""
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def bound(self) -> Literal["memory", "compute"]:
        """Whether memory or arithmetic sets the least time of a call."""
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"

    def least_seconds(self, seconds: float) -> float:
        """Return the least seconds of a call, for a program that takes `seconds`.

        A program that is clearly faster than the arithmetic limit does less arithmetic than the reference. Then only
        the memory limit counts.
        """
        return self.floor_seconds if self.compute_seconds <= 1.05 * seconds else self.memory_seconds


class Profile(Record):
    """A profile of one correct program, with a page of text for the performance analysis agent."""

    tool: str
    """The profilers that were used."""
    seconds: Positive
    """Seconds of one call, timed without a profiler."""
    hot_spots: tuple[HotSpot, ...]
    roofline: Roofline
    digest_text: str
    """The profile as one page of text, which the performance analysis agent reads."""
    kernels: tuple[KernelCounters, ...] = ()
    """Hardware counters of kernels, if a profiler could read them."""
    bottleneck: str = ""
    """One line that names the bottleneck, found by fixed rules; empty if no rule applies."""
    authored: AuthoredCode | None = None
    """Where the time goes inside authored kernels; None if it was not sampled, as on a device."""
    timeline: tuple[Span, ...] = ()
    """The last call of the profiled run, in order of execution: the kernels if a device ran any, otherwise torch's
    operators and the times between them. If there are too many, only the longest are kept."""

    @property
    def roofline_share(self) -> float:
        """The least possible time divided by the program's time; 1 means that the program is at the limit."""
        return self.roofline.least_seconds(self.seconds) / self.seconds


class ImportedProfile(Record):
    """A profile from files that were exported on another machine. kforge measured nothing of it."""

    tool: str
    hot_spots: tuple[HotSpot, ...]
    """Times per call if the number of calls is known; otherwise of everything that was recorded."""
    digest_text: str
    kernels: tuple[KernelCounters, ...] = ()
    bottleneck: str = ""
    seconds: Amount | None = None
    """Device seconds per call; None if the number of calls is unknown."""
    timeline: tuple[Span, ...] = ()
    """Always empty: the imported tables do not contain the order of execution."""
    roofline: Roofline | None = None
    """The roofline of the problem; None if no problem was given."""

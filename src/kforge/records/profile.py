"""Where a program's time goes, and what the device would allow."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kforge.records.numbers import Amount, Count, Finite, Positive
from kforge.records.record import Record


class HotSpot(Record):
    """One operator or kernel in a profile."""

    name: str
    calls: Count
    seconds: Amount
    """Per call of the module."""
    share: Amount


class Span(Record):
    """One kernel or operator in the timeline of a call, with its time."""

    name: str
    start: Amount
    """Seconds after the first span of the call began."""
    seconds: Amount


class KernelCounters(Record):
    """A device's counters for one kernel. A figure that was not measured is absent; shares are fractions of 1."""

    name: str
    launches: Count
    seconds: Amount
    """Seconds of all its launches together."""
    share: Amount
    """Share of the time of all counted kernels."""
    figures: dict[str, Finite] = Field(default_factory=dict)
    """Figures by the names that `profiling.counters` lists."""
    stalls: dict[str, Finite] = Field(default_factory=dict)
    """Share of the warps' resident time for each stall reason."""
    pipes: dict[str, Finite] = Field(default_factory=dict)
    """How busy each kind of arithmetic unit is."""
    limits: tuple[str, ...] = ()
    """What keeps more warps from being resident."""


class Peaks(Record):
    """The rates that a device reaches at most, measured on it."""

    device: str
    bytes_per_second: Positive
    flops_per_second: Positive
    lowered: dict[str, Positive] = Field(default_factory=dict)
    """Peak arithmetic in the lower precisions that a program may declare (`tf32`, `half`), where the device has
    them."""
    wired_bytes_per_second: Positive | None = None
    """The memory bus's rated bandwidth, as the device reports it; None where it reports none."""

    @property
    def most_bytes_per_second(self) -> float:
        """Bandwidth that no program exceeds. The measured peak is that of kforge's own sweeps, and a program may be
        quicker."""
        return max(self.bytes_per_second, self.wired_bytes_per_second or 0.0)

    def flops(self, precision: str) -> float:
        """Return the arithmetic rate that a program of this declared precision may reach."""
        return self.lowered.get(precision, self.flops_per_second)


class Roofline(Record):
    """The least time that the measured peaks of a device allow for a workload."""

    peaks: Peaks
    memory_seconds: Amount
    compute_seconds: Amount

    @property
    def floor_seconds(self) -> float:
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def bound(self) -> Literal["memory", "compute"]:
        return "memory" if self.memory_seconds >= self.compute_seconds else "compute"


class Profile(Record):
    """A profile of one correct program, digested to a page that the performance analysis agent reads."""

    tool: str
    """The profiler that was really used."""
    seconds: Positive
    hot_spots: tuple[HotSpot, ...]
    roofline: Roofline
    digest_text: str
    kernels: tuple[KernelCounters, ...] = ()
    bottleneck: str = ""
    """Named by rule from what was measured; empty where no rule holds."""
    timeline: tuple[Span, ...] = ()
    """The last call of the profiled run, in order of execution: the kernels if a device ran any, else torch's operators
    and the times between them. The longest ones of a call that has very many."""

    @property
    def roofline_share(self) -> float:
        """How near the program is to what the device allows; 1 is the limit.

        A program that is clearly below the arithmetic floor does less arithmetic than the reference (algebra), so only
        memory limits it.
        """
        memory, compute = self.roofline.memory_seconds / self.seconds, self.roofline.compute_seconds / self.seconds
        return max(memory, compute) if compute <= 1.05 else memory


class ImportedProfile(Record):
    """A profile from files that were exported on another machine; kforge measured none of it."""

    tool: str
    hot_spots: tuple[HotSpot, ...]
    """Per call where the number of calls is known, else for everything that was recorded."""
    digest_text: str
    kernels: tuple[KernelCounters, ...] = ()
    bottleneck: str = ""
    seconds: Amount | None = None
    """The device's time per call, where the number of calls is known."""
    timeline: tuple[Span, ...] = ()
    """Empty: what is imported are tables, without the order of execution."""
    roofline: Roofline | None = None
    """Present where a problem was given."""

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


class KernelCounters(Record):
    """What a device's counters say about one kernel. A figure that nobody measured is absent; shares are of 1."""

    name: str
    launches: Count
    seconds: Amount
    """Of all its launches together."""
    share: Amount
    """Of the time of all kernels that were counted."""
    figures: dict[str, Finite] = Field(default_factory=dict)
    """By the names that `profiling.counters` lists."""
    stalls: dict[str, Finite] = Field(default_factory=dict)
    """Of the time that warps are resident: the share they wait, by reason."""
    pipes: dict[str, Finite] = Field(default_factory=dict)
    """How busy each kind of arithmetic unit is."""
    limits: tuple[str, ...] = ()
    """What keeps more warps from being resident."""


class Peaks(Record):
    """What a device can do at most, measured on it."""

    device: str
    bytes_per_second: Positive
    flops_per_second: Positive
    lowered: dict[str, Positive] = Field(default_factory=dict)
    """Arithmetic in the lower precisions that a program may declare (`tf32`, `half`), where the device has them."""
    wired_bytes_per_second: Positive | None = None
    """What the wires to its memory carry, by its own account; None where it gives none."""

    @property
    def most_bytes_per_second(self) -> float:
        """What no program exceeds: a peak that was measured is that of our sweeps, and another may be quicker."""
        return max(self.bytes_per_second, self.wired_bytes_per_second or 0.0)

    def flops(self, precision: str) -> float:
        """The arithmetic a second that a program of this declared precision may reach."""
        return self.lowered.get(precision, self.flops_per_second)


class Roofline(Record):
    """The least time physics allows for a workload on a device with these measured peaks."""

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
    """The rung of the profiler ladder that was really used."""
    seconds: Positive
    hot_spots: tuple[HotSpot, ...]
    roofline: Roofline
    digest_text: str
    kernels: tuple[KernelCounters, ...] = ()
    bottleneck: str = ""
    """Named by rule from what was measured; empty where no rule holds."""

    @property
    def roofline_share(self) -> float:
        """How near the program is to what the device allows, where 1 is all of it.

        A program that beats the arithmetic floor clearly does less arithmetic than the reference (algebra), so only
        memory bounds it.
        """
        memory, compute = self.roofline.memory_seconds / self.seconds, self.roofline.compute_seconds / self.seconds
        return max(memory, compute) if compute <= 1.05 else memory


class ImportedProfile(Record):
    """A profile read from exports that were made elsewhere: nothing in it was seen by us."""

    tool: str
    hot_spots: tuple[HotSpot, ...]
    """Per call where the number of calls is known, else of all that was recorded."""
    digest_text: str
    kernels: tuple[KernelCounters, ...] = ()
    bottleneck: str = ""
    seconds: Amount | None = None
    """The device's time a call, where the number of calls is known."""
    roofline: Roofline | None = None
    """Where a problem was given."""

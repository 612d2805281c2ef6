"""Records of a device: what it is, and the highest rates that were measured on it."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from kforge.records.numbers import Count, Positive
from kforge.records.record import Record


class CacheLevel(Record):
    """One level of a processor's caches."""

    level: Count
    """1 for the level nearest to a core."""
    bytes: Count
    """Size of one cache of this level."""
    threads: Count
    """Hardware threads that share one cache of this level, of those that kforge may use."""
    count: Count = 1
    """Number of caches of this level that those threads have together."""
    bytes_per_second: Positive | None = None
    """Rate at which all threads together read data of their own that fits into this level. None if it was not
    measured."""

    @property
    def total_bytes(self) -> int:
        """Size of all caches of this level together."""
        return self.count * self.bytes


class Peaks(Record):
    """The highest memory and arithmetic rates that were measured on a device, with its caches and clock."""

    device: str
    bytes_per_second: Positive
    flops_per_second: Positive
    lowered: dict[str, Positive] = Field(default_factory=dict)
    """Peak FLOP/s in lower precisions (`tf32`, `half`), if the device has them."""
    wired_bytes_per_second: Positive | None = None
    """Rated bandwidth of the memory bus, as the device reports it; None if it reports none."""
    caches: tuple[CacheLevel, ...] = ()
    """The processor's caches, the first level first. Empty on a device, and if the kernel does not report them."""
    hertz: Positive | None = None
    """Clock rate in Hz that one thread reached; None if it was not measured."""
    quiet: bool = True
    """Whether the machine was quiet while the rates were measured. If not, it may be faster than they say."""

    @property
    def most_bytes_per_second(self) -> float:
        """Bandwidth that no program can exceed. The measured peak is that of kforge's own kernels; a program may be
        faster."""
        return max(self.bytes_per_second, self.wired_bytes_per_second or 0.0)

    def flops(self, precision: str) -> float:
        """Return the peak FLOP/s for a program of this declared precision."""
        return self.lowered.get(precision, self.flops_per_second)

    def joined(self, other: Self) -> Self:
        """Return the larger of the two measurements of each rate. Disturbances only lower a rate, so the larger one is
        nearer to the truth."""
        rates = {name: _larger(getattr(self, name), getattr(other, name)) for name in _RATES}
        lowered = {name: _larger(self.lowered.get(name), rate) for name, rate in other.lowered.items()}
        read = {cache.level: cache.bytes_per_second for cache in self.caches}
        caches = tuple(
            cache.model_copy(update={"bytes_per_second": _larger(read.get(cache.level), cache.bytes_per_second)})
            for cache in other.caches
        )
        more = {"lowered": {**self.lowered, **lowered}, "caches": caches, "quiet": self.quiet or other.quiet}
        return other.model_copy(update={**rates, **more})


_RATES = ("bytes_per_second", "flops_per_second", "wired_bytes_per_second", "hertz")
"""Fields of `Peaks` that are rates or None."""


def _larger(one: float | None, other: float | None) -> float | None:
    return max((rate for rate in (one, other) if rate is not None), default=None)


class DeviceFact(Record):
    """One fact about a device, as a line of text with a name."""

    name: str
    text: str


class DeviceFacts(Record):
    """The facts about a device that an engineer needs for writing a program for it."""

    device: str
    facts: tuple[DeviceFact, ...]
    """Facts that the machine reports, then those that were measured."""
    peaks: Peaks | None = None
    """The measured rates; None if programs are emulated, because the rates of the host say nothing about the device."""

    @property
    def text(self) -> str:
        """The facts as one line each, with aligned names."""
        width = max((len(fact.name) for fact in self.facts), default=0) + 2
        return "\n".join(f"{fact.name:<{width}}{fact.text}" for fact in self.facts)

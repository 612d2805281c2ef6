"""What an adapter says about its platform's profilers: how a worker is started under one, or why it cannot be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Overseer(Protocol):
    """A tool that a worker runs under: a sanitizer, or a profiler.

    Under a command every worker is a new interpreter. What variables are enough for must bear to be forked: workers are
    copies of a process that runs under it.
    """

    @property
    def wrapper(self) -> tuple[str, ...]:
        """A command that is put before the interpreter's own; none where variables are enough."""

    @property
    def environment(self) -> Mapping[str, str]:
        """For the interpreter, and whatever stands before it."""


@dataclass(frozen=True)
class Profiler:
    """A rung of the ladder above torch's own profiler.

    What it counted is in the worker's output after it ended, as an export that `kforge.profiling` reads; it counts
    only what runs inside `Adapter.recording`.
    """

    name: str
    wrapper: tuple[str, ...]
    why_not: Callable[[str], str | None]
    """What in a worker's output says that this profiler cannot work here, in one line; None where nothing does."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NoProfiler:
    """A rung that is missing here, and why, in one line."""

    name: str
    reason: str

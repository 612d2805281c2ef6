"""How a program is made of its graph: the choices that can be made otherwise, and the moves from one to another.

A program says its plan in its first line, so that whoever goes on with an interrupted run knows where it stands.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace

_LINE = re.compile(r"^# Made by kforge's smith: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """All of them whole numbers; 1 and 0 are yes and no."""

    algebra: int = 1
    """Whether the graph is rewritten first."""
    kernels: int = 1
    """Whether kernels are written at all."""
    threads: int = 1
    """How much work a thread must be worth, in units of the usual."""
    tile: int = 256
    """Neighbours of a column kernel that are worked on together."""
    keep: int = 8
    """What takes more operations than this is kept for the next sweep, and not computed again."""

    def line(self) -> str:
        return "# Made by kforge's smith: " + ", ".join(f"{name}={value}" for name, value in asdict(self).items())

    @classmethod
    def of(cls, source: str) -> Plan | None:
        """The plan that a program was made by; None for a program that somebody else wrote."""
        found = _LINE.search(source)
        if found is None:
            return None
        try:
            values = dict(each.split("=") for each in found[1].split(", "))
            return cls(**{name: int(value) for name, value in values.items()})
        except (TypeError, ValueError):
            return None

    def simpler(self) -> Plan | None:
        """The next thing to try when a program failed: fewer liberties."""
        if self.algebra:
            return replace(self, algebra=0)
        return replace(self, kernels=0) if self.kernels else None


@dataclass(frozen=True)
class Move:
    """One change of the plan, and when it is worth a try."""

    bottleneck: str
    action: str
    rationale: str
    knob: str
    value: int

    def applied(self, plan: Plan) -> Plan:
        return replace(plan, **{self.knob: self.value})


MOVES = (
    Move(
        "starting threads",
        "run kernels on one thread unless they have much more to do",
        "a call this short spends its time on waking threads up",
        "threads", 64,
    ),
    Move(
        "starting threads",
        "let threads share smaller kernels, too",
        "one thread does what several could share",
        "threads", 0,
    ),
    Move(
        "memory traffic",
        "work on 1024 neighbours at a time in column kernels",
        "longer stretches of memory are read in one go",
        "tile", 1024,
    ),
    Move(
        "cache misses",
        "work on 64 neighbours at a time in column kernels",
        "what a tile keeps fits into a nearer cache",
        "tile", 64,
    ),
    Move(
        "cache misses",
        "compute values again in the next sweep instead of keeping them",
        "arithmetic is cheaper than memory here",
        "keep", 1000,
    ),
    Move(
        "arithmetic",
        "keep every value for the next sweep instead of computing it again",
        "memory is cheaper than arithmetic here",
        "keep", 1,
    ),
)  # fmt: skip

"""How a program is made of its graph: the choices that can be made otherwise, and the moves from one to another.

A program says its plan in its first line, so that whoever goes on with an interrupted run knows where it stands.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.records import Profile

_LINE = re.compile(r"^# Made by kforge's smith: (.*)$", re.MULTILINE)


def said_in(source: str) -> str | None:
    """How a program says its plan; None for a program that somebody else wrote."""
    found = _LINE.search(source)
    return None if found is None else found[1]


@dataclass(frozen=True)
class Plan:
    """All of them whole numbers; 1 and 0 are yes and no. A language adds choices of its own."""

    ranges: ClassVar[dict[str, tuple[int, int]]] = {"algebra": (0, 1), "kernels": (0, 1)}
    """The least and the most that a plan which is read may say: a program says its plan in a comment, and anybody may
    write one."""

    algebra: int = 1
    """Whether the graph is rewritten first."""
    kernels: int = 1
    """Whether kernels are written at all."""

    @classmethod
    def first(cls, features: frozenset[str]) -> Self:  # noqa: ARG003 - a language's own plan asks for them
        """The plan to begin with on a device that has these."""
        return cls()

    def line(self) -> str:
        return f"# Made by kforge's smith: {self}"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in asdict(self).items())

    @classmethod
    def of(cls, source: str) -> Self | None:
        """The plan that a program was made by; None for a program that somebody else wrote."""
        said = said_in(source)
        return None if said is None else cls.read(said)

    @classmethod
    def read(cls, said: str) -> Self | None:
        """The plan that is said so; None where it is none of this language, or of a time with other choices."""
        try:
            values = {name: int(value) for name, value in (each.split("=") for each in said.split(", "))}
        except ValueError:
            return None
        if values.keys() != {each.name for each in fields(cls)}:
            return None
        is_within = all(low <= values[name] <= high for name, (low, high) in cls.ranges.items())
        return cls(**values) if is_within else None

    def simpler(self) -> Self | None:
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
    when: Callable[[Profile], bool] = lambda _: True
    """Of what the profile shows."""
    from_none: bool = True
    """Whether a plan that has none of it may be given some: not where that says that the device has none."""

    def applied(self, plan: Plan) -> Plan:
        return replace(plan, **{self.knob: self.value})

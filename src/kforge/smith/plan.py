"""How a program is made of its graph: the choices that can be made otherwise, and the moves from one to another.

A program says its plan in its first line, so that whoever goes on with an interrupted run knows where it stands.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.records import Profile

_LINE = re.compile(r"^# Made by kforge's smith: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Plan:
    """All of them whole numbers; 1 and 0 are yes and no. A language adds choices of its own."""

    algebra: int = 1
    """Whether the graph is rewritten first."""
    kernels: int = 1
    """Whether kernels are written at all."""

    def line(self) -> str:
        return "# Made by kforge's smith: " + ", ".join(f"{name}={value}" for name, value in asdict(self).items())

    @classmethod
    def of(cls, source: str) -> Self | None:
        """The plan that a program was made by; None for a program that somebody else wrote."""
        found = _LINE.search(source)
        if found is None:
            return None
        try:
            values = dict(each.split("=") for each in found[1].split(", "))
            return cls(**{name: int(value) for name, value in values.items()})
        except (TypeError, ValueError):
            return None

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

    def applied(self, plan: Plan) -> Plan:
        return replace(plan, **{self.knob: self.value})

"""The choices by which a program is made from its graph, and the moves from one choice to another.

A program states its plan in its first line, so that a resumed run can read it.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.records import Profile

_CHOICE = re.compile(r"(\w+)=(\d{1,9})(?=,|$)")
_LINE = re.compile(r"^# Made by kforge's smith: (.*)$", re.MULTILINE)


def said_in(source: str) -> str | None:
    """Return the plan that a program states; None for a program that the smith did not write."""
    found = _LINE.search(source)
    return None if found is None else found[1]


@dataclass(frozen=True)
class Plan:
    """A plan of integers, where 1 and 0 mean yes and no. A language adds its own choices."""

    ranges: ClassVar[dict[str, tuple[int, int]]] = {"algebra": (0, 1), "kernels": (0, 1)}
    """Accepted range of each choice in a plan that is read from a program's comment, which anybody may write."""

    algebra: int = 1
    """Whether the graph is rewritten first."""
    kernels: int = 1
    """Whether kernels are written at all."""

    @classmethod
    def first(cls, features: frozenset[str]) -> Self:  # noqa: ARG003 - a language's own plan asks for them
        """Return the first plan for a device with these features."""
        return cls()

    def line(self) -> str:
        return f"# Made by kforge's smith: {self}"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in asdict(self).items())

    @classmethod
    def of(cls, source: str) -> Self | None:
        """Return the plan by which a program was made; None for a program that the smith did not write."""
        said = said_in(source)
        return None if said is None else cls.read(said)

    @classmethod
    def read(cls, said: str) -> Self | None:
        """Parse a plan; None where it is not of this language, or of a version with other choices."""
        try:
            values = {name: int(value) for name, value in (each.split("=") for each in said.split(", "))}
        except ValueError:
            return None
        if values.keys() != {each.name for each in fields(cls)}:
            return None
        return cls(**values) if all(cls._is_in_range(name, value) for name, value in values.items()) else None

    @classmethod
    def carried_over(cls, said: str, features: frozenset[str]) -> Self:
        """Return the first plan for a device with these features, changed by another language's plan: by its choices
        that this language has as well, as far as they are in range here."""
        first, choices = cls.first(features), dict(_CHOICE.findall(said))
        shared = {name: int(choices[name]) for name in asdict(first) if name in choices}
        return replace(first, **{name: value for name, value in shared.items() if cls._is_in_range(name, value)})

    @classmethod
    def _is_in_range(cls, name: str, value: int) -> bool:
        low, high = cls.ranges[name]
        return low <= value <= high

    def simpler(self) -> Self | None:
        """Return the plan to try after a failure: without rewriting, then without kernels; None after that."""
        if self.algebra:
            return replace(self, algebra=0)
        return replace(self, kernels=0) if self.kernels else None


@dataclass(frozen=True)
class Move:
    """One change of a plan, and the condition under which it is worth a try."""

    bottleneck: str
    action: str
    rationale: str
    knob: str
    value: int
    when: Callable[[Profile], bool] = lambda _: True
    """The condition, from the program's profile."""
    from_none: bool = True
    """Whether the choice may be changed from 0. Not where 0 means that the device lacks the feature."""

    def applied(self, plan: Plan) -> Plan:
        return replace(plan, **{self.knob: self.value})

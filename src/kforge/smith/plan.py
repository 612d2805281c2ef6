"""A plan: the choices by which the smith makes a program from a graph. A move changes one choice.

The first line of a program states its plan, so that a resumed run can read it.
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
    """Return the text of the plan in a program's comment. None if the program has no such comment, so that the smith
    did not write it."""
    found = _LINE.search(source)
    return None if found is None else found[1]


@dataclass(frozen=True)
class Plan:
    """The choices that all languages share. Choices are integers; 1 and 0 mean yes and no. Each language's plan adds
    its own choices."""

    ranges: ClassVar[dict[str, tuple[int, int]]] = {"algebra": (0, 1), "kernels": (0, 1)}
    """Smallest and largest accepted value of each choice. Plans are read from comments in programs, which anybody may
    write."""

    algebra: int = 1
    """Whether rules rewrite the graph before kernels are written."""
    kernels: int = 1
    """Whether kernels are written. If not, the program is the problem's own module."""

    @classmethod
    def first(cls, features: frozenset[str]) -> Self:  # noqa: ARG003 - plans of languages use it
        """Return the plan that is tried first on a device with these features."""
        return cls()

    def line(self) -> str:
        return f"# Made by kforge's smith: {self}"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in asdict(self).items())

    @classmethod
    def of(cls, source: str) -> Self | None:
        """Return the plan by which a program was made. None if the program does not state a valid plan of this
        language."""
        said = said_in(source)
        return None if said is None else cls.read(said)

    @classmethod
    def read(cls, said: str) -> Self | None:
        """Return the plan that this text describes. None if the text is not a plan of this language with exactly these
        choices."""
        try:
            values = {name: int(value) for name, value in (each.split("=") for each in said.split(", "))}
        except ValueError:
            return None
        if values.keys() != {each.name for each in fields(cls)}:
            return None
        return cls(**values) if all(cls._is_in_range(name, value) for name, value in values.items()) else None

    @classmethod
    def carried_over(cls, said: str, features: frozenset[str]) -> Self:
        """Return the first plan for a device with these features, changed by the plan of a program in another language.

        Only choices that both languages have, and whose values are in range, are taken over.
        """
        first, choices = cls.first(features), dict(_CHOICE.findall(said))
        shared = {name: int(choices[name]) for name in asdict(first) if name in choices}
        return replace(first, **{name: value for name, value in shared.items() if cls._is_in_range(name, value)})

    @classmethod
    def _is_in_range(cls, name: str, value: int) -> bool:
        low, high = cls.ranges[name]
        return low <= value <= high

    def simpler(self) -> Self | None:
        """Return the plan to try after a failure: first without rewriting, then without kernels. None if there is
        nothing left to switch off."""
        if self.algebra:
            return replace(self, algebra=0)
        return replace(self, kernels=0) if self.kernels else None


@dataclass(frozen=True)
class Move:
    """A change of one choice of a plan that the smith can recommend. `knob` is the choice's name and `value` its new
    value; the other texts become the recommendation."""

    bottleneck: str
    action: str
    rationale: str
    knob: str
    value: int
    when: Callable[[Profile], bool] = lambda _: True
    """Returns, from the program's profile, whether the move is worth a try."""
    from_none: bool = True
    """Whether the move may change the choice from 0. False if 0 means that the device lacks the feature."""

    def applied(self, plan: Plan) -> Plan:
        return replace(plan, **{self.knob: self.value})

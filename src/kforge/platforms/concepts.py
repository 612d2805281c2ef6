"""What platforms have in common under different names, and how one platform's words translate into another's.

A manifest may say in its table `[concepts]` what each of these is called there. From two such tables comes the mapping
that a generation agent gets with a program from another platform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kforge.platforms.manifest import Manifest

CONCEPTS = {
    "launch": "start of a kernel",
    "grid": "all work items of a launch",
    "group": "work items that share memory and wait for each other",
    "thread": "one work item",
    "subgroup": "work items that run in lockstep",
    "memory": "arrays in a kernel's parameters",
    "scalars": "single numbers in a kernel's parameters",
    "group_memory": "memory of a group",
    "barrier": "wait for the whole group",
    "shuffle": "exchange or reduction within a subgroup",
    "vector_load": "several neighbouring elements at once",
    "tails": "elements beyond the last full block",
    "atomics": "atomic updates",
    "half": "half precision",
    "matrix_unit": "matrix unit",
    "functions": "functions of numbers",
    "unrolling": "unrolled loops",
}
"""What each concept is, in plain words, in the order in which a mapping lists them."""


class Counterpart(NamedTuple):
    """One concept on two platforms."""

    what: str
    there: str
    here: str | None
    """None where this platform has nothing like it."""


def counterparts(source: Manifest, target: Manifest) -> tuple[Counterpart, ...]:
    """Return the concepts that the source platform has, each with its name there and here."""
    return tuple(
        Counterpart(what, source.concepts[name], target.concepts.get(name))
        for name, what in CONCEPTS.items()
        if name in source.concepts
    )

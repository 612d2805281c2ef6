"""Concepts that platforms share under different names, such as a thread group, and their names on each platform.

A manifest may list its names in a table `[concepts]`. Two such tables give the mapping that a generation agent gets
together with a program from another platform.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from kforge.records import Record

if TYPE_CHECKING:
    from kforge.platforms.manifest import Manifest


class Concepts(Record):
    """The name of each concept on one platform, in the order in which a mapping lists them.

    A name is empty if the platform has no such concept. The field descriptions say in plain words what each concept is.
    """

    launch: str = Field(default="", description="start of a kernel")
    grid: str = Field(default="", description="all work items of a launch")
    group: str = Field(default="", description="work items that share memory and wait for each other")
    thread: str = Field(default="", description="one work item")
    subgroup: str = Field(default="", description="work items that run in lockstep")
    memory: str = Field(default="", description="arrays in a kernel's parameters")
    scalars: str = Field(default="", description="single numbers in a kernel's parameters")
    group_memory: str = Field(default="", description="memory of a group")
    barrier: str = Field(default="", description="wait for the whole group")
    shuffle: str = Field(default="", description="exchange or reduction within a subgroup")
    vector_load: str = Field(default="", description="several neighbouring elements at once")
    tails: str = Field(default="", description="elements beyond the last full block")
    atomics: str = Field(default="", description="atomic updates")
    half: str = Field(default="", description="half precision")
    matrix_unit: str = Field(default="", description="matrix unit")
    functions: str = Field(default="", description="functions of numbers")
    unrolling: str = Field(default="", description="unrolled loops")


class Counterpart(NamedTuple):
    """One concept with its description, its name on the source platform (`there`), and its name on the target platform
    (`here`)."""

    what: str
    there: str
    here: str
    """The concept's name on the target platform. Empty if that platform has no such concept."""


def counterparts(source: Manifest, target: Manifest) -> tuple[Counterpart, ...]:
    """Return the concepts that the source platform has, each with its name on both platforms."""
    return tuple(
        Counterpart(field.description or name, there, getattr(target.concepts, name))
        for name, field in Concepts.model_fields.items()
        if (there := getattr(source.concepts, name))
    )

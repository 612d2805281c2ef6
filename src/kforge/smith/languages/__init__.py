"""Languages that kernels are written in. A program (`program.py`) is the same in all of them but for its kernels.

A language is a folder here whose class has the methods of `Language`, and a line in `find`. A platform's manifest says
which one it speaks (`kernels = "…"`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.plan import Move, Plan
    from kforge.smith.rewrite.rule import Rule


@dataclass(frozen=True)
class Context:
    """What a kernel is written into: the graph, the plan, and how `forward` says the tensors that it has."""

    graph: Graph
    plan: Plan
    memory: Callable[[str], str]
    """A node whose memory is its own, as a kernel takes it: row-major."""
    elements: Callable[[str], str]
    """Any node's elements in row-major memory, copied where they lie otherwise."""
    empty: Callable[[tuple[int, ...], str], str]
    """New memory of a shape and a dtype, for what passes between two kernels."""


@dataclass(frozen=True)
class WrittenKernel:
    """Source text, and the statements of `forward` that run it. Memory for the outputs is there by then."""

    name: str
    text: str
    steps: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    """Functions that the text uses and that `Language.library` writes out, once for all kernels."""
    reuses: Mapping[str, str] = field(default_factory=dict)
    """Outputs that are written over what nobody reads any more: each with the node whose memory it takes."""


class Language(Protocol):
    @property
    def plan(self) -> type[Plan]:
        """What can be chosen in this language."""
        ...

    @property
    def moves(self) -> tuple[Move, ...]: ...

    @property
    def imports(self) -> tuple[str, ...]:
        """Lines that a program with kernels begins with."""
        ...

    @property
    def on_host(self) -> bool:
        """Whether kernels work on the host's memory, where torch makes tensors unless told otherwise."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of nodes that regions are made of."""
        ...

    @property
    def most_nodes(self) -> int:
        """Of a graph whose kernels can be built in an evaluation's time."""
        ...

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Of graphs, beyond the algebra that holds everywhere: what kernels of this language do better than calls."""
        ...

    def region(self, name: str, region: Region, context: Context) -> WrittenKernel:
        """A kernel of what a region is made of."""
        ...

    def call(self, name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
        """A kernel in place of a call of torch, with the maps that follow it as its tail; None leaves it to torch."""
        ...

    def beside(self, node: Node, tail: Region | None, context: Context) -> tuple[Node, ...]:
        """Other calls that `call` computes in the same kernel where it takes this tail: nobody else reads them."""
        ...

    def library(self, kernels: Sequence[WrittenKernel]) -> str:
        """The kernels as a part of the program's text."""
        ...


def find(name: str) -> Language | None:
    """The language of this name; None for the empty one, where programs are torch's operators."""
    from kforge.smith.languages.cpp import Cpp
    from kforge.smith.languages.triton import Triton

    languages: dict[str, Language | None] = {"": None, "c++": Cpp(), "triton": Triton()}
    return languages[name]

"""The languages in which kernels are written. Programs (`program.py`) differ between them only in their kernels.

A language is a folder here whose class has the methods of `Language`, and a line in `find`. A platform's manifest names
its language (`kernels = "…"`).
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
    """What a kernel is written for: the graph, the plan, and the expressions for tensors in `forward`."""

    graph: Graph
    plan: Plan
    memory: Callable[[str], str]
    """Returns the expression for a node that owns its memory, as a kernel takes it: row-major."""
    elements: Callable[[str], str]
    """Returns the expression for any node's elements in row-major memory, copied where they lie otherwise."""
    empty: Callable[[tuple[int, ...], str], str]
    """Returns the expression for new memory of a shape and a dtype, for values that pass between two kernels."""


@dataclass(frozen=True)
class WrittenKernel:
    """Source text, and the statements of `forward` that run it. The outputs' memory is allocated before."""

    name: str
    text: str
    steps: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    """Functions that the text uses and that `Language.library` writes out, once for all kernels."""
    reuses: Mapping[str, str] = field(default_factory=dict)
    """Outputs that are written over a node that is not read again: for each output the node whose memory it takes."""


class Language(Protocol):
    @property
    def plan(self) -> type[Plan]:
        """The type of this language's plan."""
        ...

    @property
    def moves(self) -> tuple[Move, ...]: ...

    @property
    def imports(self) -> tuple[str, ...]:
        """The first lines of a program with kernels."""
        ...

    @property
    def on_host(self) -> bool:
        """Whether kernels work on host memory, which is torch's default."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of nodes that regions are made of."""
        ...

    @property
    def most_nodes(self) -> int:
        """Most nodes of a graph whose kernels can be built within an evaluation's time."""
        ...

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Graph rules for this language, besides the algebra that always holds: for what its kernels do better than
        calls."""
        ...

    def region(self, name: str, region: Region, context: Context) -> WrittenKernel:
        """Return a kernel for a region."""
        ...

    def call(self, name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
        """Return a kernel in place of a call of torch, with the maps after it as its tail; None leaves it to torch."""
        ...

    def beside(self, node: Node, tail: Region | None, context: Context) -> tuple[Node, ...]:
        """Return other calls that `call` computes in the same kernel with this tail; nothing else reads them."""
        ...

    def library(self, kernels: Sequence[WrittenKernel]) -> str:
        """Return the program text that defines the kernels."""
        ...


def find(name: str) -> Language | None:
    """Return the language of this name; None for the empty name, for which programs use torch's operators."""
    from kforge.smith.languages.cpp import Cpp
    from kforge.smith.languages.triton import Triton

    languages: dict[str, Language | None] = {"": None, "c++": Cpp(), "triton": Triton()}
    return languages[name]

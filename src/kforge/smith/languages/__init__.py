"""The languages in which kernels are written. Programs (`program.py`) differ between them only in their kernels.

A language is a class with the attributes and methods of `Language`. A platform's manifest names it (`kernels = "…"`):
one of the folders here, one that an installed package names as an entry point of the group `kforge.languages`, or the
class `Language` in a file `language.py` beside the manifest.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from kforge.errors import PlatformError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.platforms import Platform
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Graph, Node
    from kforge.smith.plan import Move, Plan
    from kforge.smith.rewrite.rule import Rule

ENTRY_POINT_GROUP = "kforge.languages"


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


def find(platform: Platform) -> Language | None:
    """Return the language that a platform's manifest names; None where it names none, and programs use torch's
    operators. Raises PlatformError: one line."""
    name = platform.manifest.kernels
    if not name:
        return None
    if (own := _own().get(name)) is not None:
        return own()
    packaged = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if name in packaged:
        origin = f"entry point {name} = {packaged[name].value}"
        try:
            return _made(packaged[name].load(), origin)
        except ImportError as error:
            raise PlatformError(f"{origin}: does not load: {' '.join(str(error).split())}") from error
    if (beside := platform.language_class()) is not None:
        return _made(beside, str(platform.folder / "language.py"))
    names = ", ".join(sorted({*_own(), *packaged}))
    raise PlatformError(
        f"platform {platform.name}: no kernel language named '{name}'; there are: {names}, "
        "and a platform may bring its own as language.py beside its platform.toml"
    )


def _own() -> dict[str, Callable[[], Language]]:
    """Return the languages that ship with kforge."""
    from kforge.smith.languages import simt
    from kforge.smith.languages.cpp import Cpp
    from kforge.smith.languages.triton import Triton

    dialects = {name: partial(simt.Simt, simt.dialect_of(name)) for name in simt.names()}
    return {"c++": Cpp, "triton": Triton, **dialects}


def _made(defined: Any, origin: str) -> Language:
    """Return a language from elsewhere. Raises PlatformError when it cannot be made or lacks a part of `Language`."""
    try:
        language = defined() if isinstance(defined, type) else defined
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise PlatformError(f"{origin}: cannot be made: {said}") from error
    needed = (name for name in vars(Language) if not name.startswith("_"))
    if missing := [name for name in needed if not hasattr(language, name)]:
        raise PlatformError(f"{origin}: the kernel language lacks: {', '.join(missing)}")
    return cast("Language", language)

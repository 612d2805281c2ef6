"""The languages in which the smith writes kernels. Programs in different languages differ only in their kernels.

A language is a class with the attributes and methods of `Language`. A platform's manifest names it (`kernels = "…"`).
The name is one of three: a language that ships with kforge, an entry point of an installed package in the group
`kforge.languages`, or the class `Language` in a file `language.py` beside the manifest.
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
    """What a language needs to write one kernel: the graph, the plan, and functions that give Python expressions for
    tensors in the program's `forward`."""

    graph: Graph
    plan: Plan
    memory: Callable[[str], str]
    """Returns the Python expression for the memory of a node, as a kernel takes it: row-major. The node must own its
    memory."""
    elements: Callable[[str], str]
    """Returns the Python expression for the elements of any node in row-major order. They are copied if they lie
    in another order."""
    empty: Callable[[tuple[int, ...], str], str]
    """Returns the Python expression that allocates memory of a shape and a dtype, for values that one kernel passes to
    another."""


@dataclass(frozen=True)
class WrittenKernel:
    """Source text of a kernel, and the statements of the program's `forward` that launch it. The memory of the outputs
    is allocated before these statements."""

    name: str
    text: str
    steps: tuple[str, ...]
    helpers: tuple[str, ...] = ()
    """Names of functions that the text calls. `Language.library` writes each of them once per program."""
    reuses: Mapping[str, str] = field(default_factory=dict)
    """Maps each output that overwrites an input, instead of taking new memory, to that input. Nothing reads the input
    afterwards."""


class Language(Protocol):
    """What the smith needs to write programs in a language: its plan, its rules, and methods that write kernels."""

    @property
    def plan(self) -> type[Plan]:
        """The class of this language's plans."""
        ...

    @property
    def moves(self) -> tuple[Move, ...]:
        """The changes of one choice of a plan that the smith can recommend in this language."""
        ...

    @property
    def imports(self) -> tuple[str, ...]:
        """The lines that a program with kernels begins with."""
        ...

    @property
    def on_host(self) -> bool:
        """Whether kernels work on host memory. Otherwise they work on the memory of a device."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of nodes for which this language writes fused kernels, such as `map` and `reduce`."""
        ...

    @property
    def most_nodes(self) -> int:
        """The largest number of nodes of a graph whose kernels can be compiled within the time of an evaluation."""
        ...

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Rewrite rules for this language only. They rewrite calls into nodes for which this language's kernels are
        faster or more exact. They run after the general rules."""
        ...

    def region(self, name: str, region: Region, context: Context) -> WrittenKernel:
        """Return a kernel for a region."""
        ...

    def call(self, name: str, node: Node, tail: Region | None, context: Context) -> WrittenKernel | None:
        """Return a kernel that replaces a call of torch, or None to leave the call to torch.

        `tail` is a region of maps that the kernel must apply to the call's result.
        """
        ...

    def beside(self, node: Node, tail: Region | None, context: Context) -> tuple[Node, ...]:
        """Return further calls of torch that the kernel of this call also computes, if it is written with this `tail`.
        Only the tail may read their results. Empty for most calls."""
        ...

    def library(self, kernels: Sequence[WrittenKernel]) -> str:
        """Return the part of the program's source that defines these kernels."""
        ...


def find(platform: Platform) -> Language | None:
    """Return the language that a platform's manifest names, or None if it names none. Without a language, programs use
    torch's operators.

    Raises PlatformError, with one line, if there is no such language or it cannot be loaded.
    """
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
            raise PlatformError(f"{origin}: cannot be loaded: {' '.join(str(error).split())}") from error
    if (beside := platform.language_class()) is not None:
        return _made(beside, str(platform.folder / "language.py"))
    names = ", ".join(sorted({*_own(), *packaged}))
    raise PlatformError(
        f"platform {platform.name}: no kernel language named '{name}'; known languages: {names}; "
        "a platform can also define its own in a file language.py beside its platform.toml"
    )


def _own() -> dict[str, Callable[[], Language]]:
    """Return the constructors of the languages that ship with kforge, by name."""
    from kforge.smith.languages import simt
    from kforge.smith.languages.cpp import Cpp
    from kforge.smith.languages.triton import Triton

    dialects = {name: partial(simt.Simt, simt.dialect_of(name)) for name in simt.names()}
    return {"c++": Cpp, "triton": Triton, **dialects}


def _made(defined: Any, origin: str) -> Language:
    """Return the language object of a class or an object that is defined outside kforge. Errors name it by `origin`.

    Raises PlatformError if the class cannot be instantiated, or if a part of `Language` is missing.
    """
    try:
        language = defined() if isinstance(defined, type) else defined
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise PlatformError(f"{origin}: cannot be instantiated: {said}") from error
    needed = (name for name in vars(Language) if not name.startswith("_"))
    if missing := [name for name in needed if not hasattr(language, name)]:
        raise PlatformError(f"{origin}: the kernel language lacks: {', '.join(missing)}")
    return cast("Language", language)

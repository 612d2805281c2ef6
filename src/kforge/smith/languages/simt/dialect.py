"""What a dialect of the SIMT languages says: types, statements, thread positions, barriers and launches.

The base class speaks C, as most dialects do, and a dialect overrides what it says otherwise. Schedules
(`reductions.py` and its like) write every statement through these methods, so that a dialect need not look like C.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INDENT = "    "
GROUP_INDEX, THREAD_INDEX = "group_index", "thread_index"
"""The variables that hold the number of a group, and of a thread in its group."""


@dataclass(frozen=True)
class Parameter:
    """A tensor that a kernel reads or writes."""

    name: str
    dtype: str
    written: bool = False
    shared: bool = False
    """Whether another parameter may lie in the same memory."""


@dataclass
class Kernel:
    """A kernel under construction. Its sizes are written into its text, so it has no other parameters."""

    name: str
    title: str
    group_size: int
    groups: int
    parameters: list[Parameter] = field(default_factory=list)
    arrays: list[tuple[str, str, int]] = field(default_factory=list)
    """Memory that a group's threads share: kind, name and number of elements."""
    lines: list[str] = field(default_factory=list)
    helpers: dict[str, None] = field(default_factory=dict)
    """Names of the functions that it calls, in the order of their first use."""
    aligned: set[str] = field(default_factory=set)
    """Parameters of which four elements are read or written at once: their memory begins at a multiple of 16 bytes."""


class Dialect:
    """A C-like dialect. Kinds of values are torch's dtypes: float32, int32, int64 and bool."""

    language: ClassVar[str]
    """The name under which `kforge.inline` compiles it."""
    types: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"float32": "float", "int32": "int", "int64": "long", "bool": "bool", "uint8": "uchar", "uint32": "uint"}
    )
    calls: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names of the dialect's own functions, by the names of `ir/functions.py`. For others, ours are written out."""
    subgroup: ClassVar[int] = 0
    """Threads that can exchange values without shared memory; 0 where none can be relied on."""
    most_threads: ClassVar[int] = 1024
    """Most threads of a group."""
    most_groups: ClassVar[int] = 2**31 - 1
    """Most groups along one axis of a launch."""
    shared_bytes: ClassVar[int] = 32 << 10
    """Memory that a group's threads can share."""
    has_int64: ClassVar[bool] = True
    has_vectors: ClassVar[bool] = True
    """Whether four neighbouring elements can be read and written at once."""
    narrow_dtypes: ClassVar[frozenset[str]] = frozenset()
    """dtypes that no buffer can have; they are copied to int32 before a launch, and back after it."""
    unrolls_by_copies: ClassVar[bool] = False
    """Whether a loop is unrolled by writing its body several times, where the language has no other way."""
    library_products: ClassVar[bool] = False
    """Whether torch's own products on this device are fast, so that large ones are left to it."""
    prelude: ClassVar[str] = ""
    """Lines before all kernels."""

    # --- types and expressions ----------------------------------------------------------------------------------

    def in_memory(self, dtype: str) -> str:
        """Return the type of a tensor's elements in memory."""
        return self.types["int32" if dtype in self.narrow_dtypes else dtype]

    def kind(self, dtype: str) -> str:
        """Return the kind of a value that was read from a tensor of this dtype."""
        return "int32" if dtype == "uint8" or (dtype in self.narrow_dtypes and dtype != "bool") else dtype

    def cast(self, kind: str, text: str) -> str:
        return f"({self.types[kind]})({text})"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"({condition} ? {yes} : {no})"

    def number(self, value: float) -> str:
        if math.isinf(value):
            return "INFINITY" if value > 0 else "(-INFINITY)"
        if math.isnan(value):
            return "NAN"
        text = f"{value:.9g}"
        text = f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"
        return f"({text})" if value < 0 else text

    def is_nan(self, text: str) -> str:
        return f"({text} != {text})"

    def bits(self, text: str) -> str:
        """Return the bits of a float32 as an int32."""
        raise NotImplementedError

    def from_bits(self, text: str) -> str:
        """Return the float32 with these bits."""
        raise NotImplementedError

    def multiply_add(self, x: str, y: str, z: str) -> str:
        return f"{x} * {y} + {z}"

    # --- statements ---------------------------------------------------------------------------------------------

    def declare(self, kind: str, name: str, value: str, *, constant: bool) -> str:
        return f"{'const ' if constant else ''}{self.types[kind]} {name} = {value};"

    def array(self, kind: str, name: str, count: int) -> str:
        """Declare an array that belongs to one thread."""
        return f"{self.types[kind]} {name}[{count}];"

    def loop(self, kind: str, index: str, start: str, end: str, step: str) -> str:
        """Return the head of a loop, without its bracket."""
        further = f"++{index}" if step == "1" else f"{index} += {step}"
        return f"for ({self.types[kind]} {index} = {start}; {index} < {end}; {further})"

    def unroll(self) -> str:
        """Return the line that asks the compiler to unroll a loop; empty if the dialect has no such line."""
        return "#pragma unroll"

    def barrier(self) -> str:
        """Return the statement at which a group's threads wait for one another, and see what they have shared."""
        raise NotImplementedError

    def swapped(self, value: str, distance: int) -> str:
        """Return the value of the thread in the same subgroup whose number differs in this bit."""
        raise NotImplementedError

    def vector(self, memory: str, index: str, *, constant: bool) -> str:
        """Return four neighbouring elements, of which `index` is the first, as something that can be read or
        written."""
        raise NotImplementedError

    def store_vector(self, memory: str, index: str, values: Sequence[str]) -> str:
        raise NotImplementedError

    # --- kernels ------------------------------------------------------------------------------------------------

    def memory(self, kernel: Kernel, name: str) -> str:  # noqa: ARG002 - not where names are global
        """Return how a kernel's body spells its parameter or shared array."""
        return name

    def function(self, name: str, parameters: Sequence[tuple[str, str]], kind: str, lines: Sequence[str]) -> str:
        """Return the definition of a scalar function."""
        given = ", ".join(f"{self.types[each]} {parameter}" for each, parameter in parameters)
        return f"{self.types[kind]} {name}({given}) {{\n" + "\n".join(lines) + "\n}\n"

    def kernel(self, kernel: Kernel) -> str:
        """Return the text of a kernel."""
        head = [f"// {kernel.title}", *self.head(kernel)]
        shared = [INDENT + self.shared_array(*each) for each in kernel.arrays]
        positions = [INDENT + line for line in self.positions(kernel)]
        return "\n".join([*head, *shared, *positions, *kernel.lines, "}"]) + "\n"

    def head(self, kernel: Kernel) -> list[str]:
        """Return the signature, with its opening bracket."""
        raise NotImplementedError

    def shared_array(self, kind: str, name: str, count: int) -> str:
        raise NotImplementedError

    def positions(self, kernel: Kernel) -> list[str]:
        """Return the statements that define `group_index` and `thread_index`."""
        raise NotImplementedError

    def grid(self, kernel: Kernel) -> tuple[int, int]:
        """Return the groups along two axes. A group beyond the last one has nothing to do."""
        if kernel.groups <= self.most_groups:
            return kernel.groups, 1
        down = -(-kernel.groups // self.most_groups)
        return -(-kernel.groups // down), down

    def launch(self, kernel: Kernel, given: Sequence[str]) -> str:
        """Return the statement of `forward` that runs a kernel."""
        across, down = self.grid(kernel)
        size, each = f"{across * kernel.group_size}", f"{kernel.group_size}"
        if down > 1:
            size, each = f"({size}, {down})", f"({each}, 1)"
        return f"library.{kernel.name}({', '.join([*given, f'threads={size}', f'group_size={each}'])})"

    def library(self, text: str) -> str:
        """Return the statement of a program that compiles all kernels."""
        return f'library = inline.compile(r"""\n{text.strip()}\n""", "{self.language}")'

"""The interface of a SIMT dialect: how one language writes types, statements, thread positions, barriers and launches.

The base class writes C, and a dialect overrides the parts in which its language differs. Schedules (`reductions.py` and
others) write every statement through these methods, so that a language need not look like C.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from kforge.smith.languages.c_literals import float_literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INDENT = "    "
GROUP_INDEX, THREAD_INDEX = "group_index", "thread_index"
"""Names of the variables that hold the index of the thread group, and the index of the thread within its group."""


@dataclass(frozen=True)
class Parameter:
    """A tensor that a kernel reads or writes."""

    name: str
    dtype: str
    written: bool = False
    shared: bool = False
    """Whether another parameter may overlap it in memory."""


@dataclass
class Kernel:
    """A kernel while it is being written. Sizes are constants in its text, so that its only parameters are tensors."""

    name: str
    title: str
    group_size: int
    groups: int
    parameters: list[Parameter] = field(default_factory=list)
    arrays: list[tuple[str, str, int]] = field(default_factory=list)
    """Arrays in shared memory: kind (dtype), name and number of elements."""
    lines: list[str] = field(default_factory=list)
    helpers: dict[str, None] = field(default_factory=dict)
    """What the kernel needs outside of its own text, such as a header, in the order of first use."""
    aligned: set[str] = field(default_factory=set)
    """Names of parameters that are read or written four elements at once, and so must begin at a multiple of 16
    bytes."""


class Dialect:
    """The syntax of one SIMT language; this base class writes C. The kind of a value is one of torch's dtypes:
    float32, int32, int64 or bool."""

    language: ClassVar[str]
    """The name by which `kforge.inline` knows the language."""
    types: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"float32": "float", "int32": "int", "int64": "long", "bool": "bool", "uint8": "uchar", "uint32": "uint"}
    )
    calls: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Maps names of `ir/functions.py` to the language's own functions. All other functions are taken from
    <kforge/math.h>."""
    block: ClassVar[str] = "kforge::"
    """Prefix of the names of the functions of <kforge/math.h>."""
    subgroup: ClassVar[int] = 0
    """Number of threads that can exchange values without shared memory (a warp). 0 if a kernel cannot rely on that."""
    most_threads: ClassVar[int] = 1024
    """Most threads of a thread group."""
    most_groups: ClassVar[int] = 2**31 - 1
    """Most thread groups along one axis of a launch."""
    shared_bytes: ClassVar[int] = 32 << 10
    """Bytes of shared memory that a thread group can use."""
    has_int64: ClassVar[bool] = True
    """Whether the language has 64-bit integers, for indices into large tensors."""
    has_vectors: ClassVar[bool] = True
    """Whether four neighbouring elements can be read or written by one instruction."""
    dtypes_as_int32: ClassVar[frozenset[str]] = frozenset()
    """dtypes that the language's buffers cannot hold. Such tensors are copied to int32 before a launch, and back after
    it."""
    unrolls_by_copies: ClassVar[bool] = False
    """Whether loops are unrolled by repeating their body in the text, because the language has no pragma for it."""
    library_products: ClassVar[bool] = False
    """Whether torch's own matrix products are fast on this device, so that large products are left to torch."""
    prelude: ClassVar[str] = ""
    """Lines that come before all kernels in the source."""
    global_memory: ClassVar[str] = ""
    """Qualifier of pointers to tensors, with a space after it, such as `__global `."""
    unaliased: ClassVar[str] = "__restrict__ "
    """Qualifier of a parameter that no other parameter overlaps in memory, with a space after it."""

    # --- types and expressions ----------------------------------------------------------------------------------

    def in_memory(self, dtype: str) -> str:
        """Return the language's type for elements of this dtype in a buffer."""
        return self.types["int32" if dtype in self.dtypes_as_int32 else dtype]

    def kind(self, dtype: str) -> str:
        """Return the kind (dtype) of a value that was read from a tensor of this dtype."""
        return "int32" if dtype == "uint8" or (dtype in self.dtypes_as_int32 and dtype != "bool") else dtype

    def cast(self, kind: str, text: str) -> str:
        return f"({self.types[kind]})({text})"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"({condition} ? {yes} : {no})"

    def number(self, value: float) -> str:
        text = float_literal(value)
        return f"({text})" if text.startswith("-") else text

    def is_nan(self, text: str) -> str:
        return f"({text} != {text})"

    def multiply_add(self, x: str, y: str, z: str) -> str:
        return f"{x} * {y} + {z}"

    # --- statements ---------------------------------------------------------------------------------------------

    def declare(self, kind: str, name: str, value: str, *, constant: bool) -> str:
        return f"{'const ' if constant else ''}{self.types[kind]} {name} = {value};"

    def array(self, kind: str, name: str, count: int) -> str:
        """Return the declaration of an array that is private to one thread."""
        return f"{self.types[kind]} {name}[{count}];"

    def loop(self, kind: str, index: str, start: str, end: str, step: str) -> str:
        """Return the head of a loop, without its opening bracket."""
        further = f"++{index}" if step == "1" else f"{index} += {step}"
        return f"for ({self.types[kind]} {index} = {start}; {index} < {end}; {further})"

    def unroll(self) -> str:
        """Return the line that asks the compiler to unroll the next loop. Empty if the language has no such line."""
        return "#pragma unroll"

    def barrier(self) -> str:
        """Return the barrier statement: all threads of a group wait there, and then see each other's writes to shared
        memory."""
        raise NotImplementedError

    def swapped(self, value: str, distance: int) -> str:
        """Return the expression for the value of another thread of the same subgroup: the thread whose index differs in
        the bit `distance` (shuffle xor)."""
        raise NotImplementedError

    def vector(self, memory: str, index: str, *, constant: bool) -> str:
        """Return the expression for four neighbouring elements, beginning at `index`."""
        return f"*reinterpret_cast<{'const ' if constant else ''}float4*>({memory} + {index})"

    def store_vector(self, memory: str, index: str, values: Sequence[str]) -> str:
        raise NotImplementedError

    def leave_extra_groups(self, kernel: Kernel) -> str:
        """Return the statement that ends the threads of groups beyond the kernel's last one."""
        return f"if ({GROUP_INDEX} >= {kernel.groups}) {{\n{INDENT}{INDENT}return;\n{INDENT}}}"

    # --- kernels ------------------------------------------------------------------------------------------------

    def memory(self, kernel: Kernel, name: str) -> str:  # noqa: ARG002 - dialects with global names need the kernel
        """Return the name of a parameter or shared array in the kernel's body."""
        return name

    def kernel(self, kernel: Kernel) -> str:
        """Return the whole text of a kernel."""
        head = [f"// {kernel.title}", *self.head(kernel)]
        shared = [INDENT + self.shared_array(*each) for each in kernel.arrays]
        positions = [INDENT + line for line in self.positions(kernel)]
        return "\n".join([*head, *shared, *positions, *kernel.lines, "}"]) + "\n"

    def head(self, kernel: Kernel) -> list[str]:
        """Return the lines of the kernel's signature, with its opening bracket."""
        raise NotImplementedError

    def declared(self, parameter: Parameter) -> str:
        """Return the declaration of a parameter in a kernel's signature."""
        constant = "" if parameter.written else "const "
        unaliased = "" if parameter.shared else self.unaliased
        return f"{self.global_memory}{constant}{self.in_memory(parameter.dtype)}* {unaliased}{parameter.name}"

    def shared_array(self, kind: str, name: str, count: int) -> str:
        raise NotImplementedError

    def positions(self, kernel: Kernel) -> list[str]:
        """Return the statements that define `group_index` and `thread_index`."""
        raise NotImplementedError

    def grid(self, kernel: Kernel) -> tuple[int, int]:
        """Return the number of groups along two axes of the launch. There may be more groups than needed; the extra
        ones do nothing."""
        if kernel.groups <= self.most_groups:
            return kernel.groups, 1
        down = -(-kernel.groups // self.most_groups)
        return -(-kernel.groups // down), down

    def launch(self, kernel: Kernel, given: Sequence[str]) -> str:
        """Return the Python statement of `forward` that launches a kernel. `given` are its arguments."""
        across, down = self.grid(kernel)
        size, each = f"{across * kernel.group_size}", f"{kernel.group_size}"
        if down > 1:
            size, each = f"({size}, {down})", f"({each}, 1)"
        return f"library.{kernel.name}({', '.join([*given, f'threads={size}', f'group_size={each}'])})"

    def library(self, text: str) -> str:
        """Return the Python statement that compiles this source text."""
        return f'library = inline.compile(r"""\n{text.strip()}\n""", "{self.language}")'

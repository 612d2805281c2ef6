"""Reads the kernel functions of a Metal source: their names, parameters and attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kforge.inline.metal.text import Text, Word, refuse, spelled, split

if TYPE_CHECKING:
    from collections.abc import Sequence

SPACES = ("device", "constant", "threadgroup", "thread")
TRIPLES = {
    "thread_position_in_grid": "grid",
    "thread_position_in_threadgroup": "in_group",
    "threadgroup_position_in_grid": "group",
    "threads_per_threadgroup": "group_size",
    "dispatch_threads_per_threadgroup": "dispatch_size",
    "threads_per_grid": "grid_size",
    "threadgroups_per_grid": "groups",
}
SINGLES = {
    "thread_index_in_threadgroup": "index",
    "thread_index_in_simdgroup": "lane",
    "simdgroup_index_in_threadgroup": "simd",
    "simdgroups_per_threadgroup": "simds",
    "dispatch_simdgroups_per_threadgroup": "simds",
    "threads_per_simdgroup": "width",
    "thread_execution_width": "width",
    "quadgroup_index_in_threadgroup": "quad",
    "thread_index_in_quadgroup": "quad_lane",
    "quadgroups_per_threadgroup": "quads",
}
MAX_BUFFERS = 31
_VECTOR_TYPES = frozenset(f"{base}{size}" for base in ("uint", "ushort") for size in (2, 3, 4))
_WRONG_TYPES = frozenset(
    [f"{base}{size}" for base in ("float", "half", "int", "short", "long", "char", "bool") for size in ("", 2, 3, 4)]
    + ["ulong", "uchar", "uint4", "ushort4", "size_t"]
)
_ATTRIBUTE = re.compile(r"(?:\w+::)?(\w+)(?:\((.*)\))?$")


@dataclass(frozen=True)
class Attribute:
    """One attribute in double brackets, such as `[[buffer(0)]]`, with its argument and source line."""

    name: str
    argument: str
    line: int


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel function: a buffer, threadgroup memory, or a coordinate of the thread. A coordinate has
    one or three components."""

    name: str
    kind: Literal["buffer", "threadgroup", "triple", "single"]
    index: int
    """Index of the buffer or of the threadgroup memory. 0 for other parameters."""
    source: str
    """The member of the thread's coordinates from which the value comes. Empty for memory."""
    reference: bool
    line: int


@dataclass(frozen=True)
class KernelFunction:
    """One kernel function of a Metal source."""

    name: str
    """The name by which Python calls the kernel."""
    expression: str
    """The name by which C++ calls the kernel, with namespaces and template arguments."""
    line: int
    parameters: tuple[Parameter, ...]
    max_threads: int
    constants: tuple[str, ...] = ()
    """Names of the function constants that must have a value before a launch."""

    @property
    def buffers(self) -> tuple[Parameter, ...]:
        return tuple(sorted((one for one in self.parameters if one.kind == "buffer"), key=lambda one: one.index))

    @property
    def memories(self) -> tuple[Parameter, ...]:
        found = (one for one in self.parameters if one.kind == "threadgroup")
        return tuple(sorted(found, key=lambda one: one.index))


def attributes(text: Text, start: int, end: int) -> list[Attribute]:
    """Return all attributes (`[[...]]`) between two positions. Raises CompileError for one that cannot be read."""
    found: list[Attribute] = []
    index = start
    while index < end:
        if text.is_attribute(index):
            last = text.closing(index)
            for part in split(text.words[index + 2 : last - 1]):
                match = _ATTRIBUTE.match("".join(word.text for word in part))
                if match is None:
                    text.refuse(index, f"unreadable attribute '{spelled(part)}'")
                found.append(Attribute(match[1], match[2] or "", part[0].line))
            index = last
        index += 1
    return found


def read_parameters(text: Text, opening: int) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel, read from its opening parenthesis. Raises CompileError for parameters that
    Metal does not allow."""
    closing = text.closing(opening)
    found: list[Parameter] = []
    taken: dict[str, set[int]] = {"buffer": set(), "threadgroup": set()}
    waiting: list[tuple[int, list[Word], str]] = []
    for part in split(text.words[opening + 1 : closing]):
        if spelled(part) == "void":
            continue
        first = text.words.index(part[0])
        one = _parameter(text, first, part, taken)
        if one.index < 0:
            waiting.append((len(found), part, one.kind))
        found.append(one)
    for position, _, kind in waiting:  # parameters without an index get the free indices, in order
        index = next(number for number in range(256) if number not in taken[kind])
        taken[kind].add(index)
        found[position] = Parameter(**{**vars(found[position]), "index": index})
    return tuple(found)


def _parameter(text: Text, first: int, part: Sequence[Word], taken: dict[str, set[int]]) -> Parameter:
    given = attributes(text, first, first + len(part))
    bare = _without_attributes(text, first, first + len(part))
    words = [word.text for word in bare]
    line = part[0].line
    name = words[-1] if len(words) > 1 and words[-1].isidentifier() else ""
    if "(" in words:  # `constant float (&table)[4]`
        name = words[words.index("(") + 2]
    elif "[" in words:
        name = words[words.index("[") - 1]
    pointer, reference = "*" in words or ("[" in words and "(" not in words), "&" in words
    if any(word.startswith(("texture", "sampler", "depth")) for word in words[:-1]):
        refuse(line, f"'{name}': textures and samplers are not emulated")
    if pointer or reference:
        return _memory(line, name, words, given, taken, reference=reference)
    return _position(line, name, words, given)


def _position(line: int, name: str, words: Sequence[str], given: Sequence[Attribute]) -> Parameter:
    """Return a parameter that is passed by value. Its attribute says which coordinate of the thread it is."""
    type_words = [word for word in words[:-1] if word not in ("const", "metal", "::")]
    spelling = " ".join(words[:-1])
    if not given:
        refuse(
            line,
            f"invalid type '{spelling}' for the parameter '{name}' of a kernel: it needs an attribute such as "
            f"[[thread_position_in_grid]], or must be 'constant {spelling}&'",
        )
    one = given[0]
    kind: Literal["triple", "single"] = "triple" if one.name in TRIPLES else "single"
    source = TRIPLES.get(one.name) or SINGLES.get(one.name)
    if source is None:
        refuse(one.line, f"unknown attribute '{one.name}' of the parameter '{name}'")
    # The type may also be an alias, which the compiler checks: the entry function converts to valid types only.
    if "".join(type_words) in (_WRONG_TYPES if kind == "triple" else _WRONG_TYPES | _VECTOR_TYPES):
        refuse(line, f"type '{spelling}' is not valid for attribute '{one.name}'")
    return Parameter(name, kind, 0, source, reference=False, line=line)


def _memory(
    line: int,
    name: str,
    words: Sequence[str],
    given: Sequence[Attribute],
    taken: dict[str, set[int]],
    *,
    reference: bool,
) -> Parameter:
    what = "reference" if reference else "pointer"
    space = next((word for word in words if word in SPACES), "")
    if space in ("", "thread"):
        refuse(
            line,
            f"{what} type must have explicit address space qualifier: "
            f"'{name}' of a kernel is device, constant or threadgroup",
        )
    kind: Literal["buffer", "threadgroup"] = "threadgroup" if space == "threadgroup" else "buffer"
    index = -1
    for one in given:
        if one.name in ("buffer", "threadgroup"):
            if one.name != kind:
                refuse(one.line, f"attribute '{one.name}' does not fit the address space {space} of '{name}'")
            if not one.argument.isdigit():
                refuse(one.line, f"attribute '{one.name}' of '{name}' needs a number, got '{one.argument}'")
            index = int(one.argument)
            if index in taken[kind]:
                refuse(
                    one.line,
                    f"cannot reserve '{one.name}' resource location at index {index} for '{name}': it is taken",
                )
            if index >= MAX_BUFFERS:
                refuse(one.line, f"'{one.name}' index {index} of '{name}' is out of bounds: there are {MAX_BUFFERS}")
            taken[kind].add(index)
        elif one.name not in ("function_constant", "maybe_unused", "raster_order_group", "id"):
            refuse(one.line, f"unknown attribute '{one.name}' of the parameter '{name}'")
    return Parameter(name, kind, index, "", reference=reference, line=line)


def _without_attributes(text: Text, start: int, end: int) -> list[Word]:
    kept: list[Word] = []
    index = start
    while index < end:
        if text.is_attribute(index):
            index = text.closing(index) + 1
            continue
        kept.append(text.words[index])
        index += 1
    return kept

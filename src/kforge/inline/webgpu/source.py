"""Reads the kernels of a WGSL source, the variables that each kernel uses, and their types.

`wgpu`'s Python interface has no reflection, so the text is parsed here. The compiler has accepted the source before, so
that this parser only has to understand valid sources.
"""

from __future__ import annotations

import ast
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.inline.errors import CompileError
from kforge.inline.grammar import closing_bracket, read_statement, tokenize
from kforge.inline.webgpu.declarations import SIZES, Buffer, Entry, Override, Shape, Uniform

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHORT = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}
_VECTOR = re.compile(r"vec([234])([fiuh])?$")
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)[iu]?$")
_OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip


@dataclass(frozen=True)
class _Function:
    """A function of a WGSL source."""

    name: str
    attributes: Mapping[str, Sequence[str]]
    words: Sequence[str]
    """The words of the body."""
    parameters: frozenset[str]
    """The names of the parameters, which hide variables of the module."""


def entries(source: str) -> tuple[Entry, ...]:
    """Return the kernels of a source that the compiler has accepted. Raises CompileError for a kernel that cannot be
    called."""
    module = _Module(source)
    return tuple(module.entry(one) for one in module.functions.values() if "compute" in one.attributes)


class _Module:
    """The declarations of a source, by name."""

    def __init__(self, source: str) -> None:
        self.functions: dict[str, _Function] = {}
        self.integers: dict[str, int] = {}
        self.overrides: dict[str, Override] = {}
        self.aliases: dict[str, Sequence[str]] = {}
        self.structures: dict[str, Sequence[str]] = {}
        self.variables: dict[str, tuple[Mapping[str, Sequence[str]], Sequence[str], Sequence[str]]] = {}
        """For each variable: its attributes, the words between the angle brackets after `var`, and the words of its
        type."""
        tokens = tokenize(source)
        position = 0
        while position < len(tokens):
            head, has_body, after = read_statement(tokens, position, len(tokens))
            body = tokens[position + len(head) + 1 : after - 1] if has_body else []
            attributes, words = _attributes(head)
            self._declare(attributes, words, body)
            position = after

    def _declare(self, attributes: Mapping[str, Sequence[str]], words: Sequence[str], body: Sequence[str]) -> None:
        match words:
            case ["fn", name, "(", *_]:
                closing = closing_bracket(words, 2)
                named = frozenset(_names(words[3:closing]))
                self.functions[name] = _Function(name, attributes, body, named)
            case ["struct", name]:
                self.structures[name] = body
            case ["alias", name, "=", *meaning]:
                self.aliases[name] = meaning
            case ["const", name, *rest]:
                value = self._integer(rest[rest.index("=") + 1 :] if "=" in rest else ())
                if value is not None:
                    self.integers[name] = value
            case ["override", name, *rest]:
                value = self._integer(rest[rest.index("=") + 1 :] if "=" in rest else ())
                key = "".join(attributes.get("id", ())) or name
                self.overrides[name] = Override(name, key, value)
            case ["var", "<", *rest] if ">" in rest:
                space = rest[: rest.index(">")]
                declared = rest[rest.index(">") + 1 :]
                if ":" in declared:
                    end = declared.index("=") if "=" in declared else len(declared)
                    self.variables[declared[0]] = (attributes, space, declared[2:end])

    def entry(self, function: _Function) -> Entry:
        name = function.name
        used = self._used(function)
        reached = list(self._reached(function))
        buffers: list[Buffer] = []
        uniforms: list[Uniform] = []
        group_bytes = 0
        for variable in sorted(used):
            attributes, space, words = self.variables[variable]
            if space[0] == "workgroup":
                group_bytes += self._bytes(words)
            elif space[0] in ("storage", "uniform"):
                place = f"{name}: variable {variable}"
                if self._integer(attributes.get("group", ())) != 0:
                    raise CompileError(f"{place} must be in @group(0)")
                binding = self._integer(attributes.get("binding", ()))
                if binding is None:
                    raise CompileError(f"{place} needs @binding with a number")
                if space[0] == "storage":
                    shape = self._storage_shape(place, words)
                    buffers.append(Buffer(variable, binding, shape, "read_write" in space))
                else:
                    uniforms.append(Uniform(variable, binding, self._members(place, variable, words)))
        read = frozenset(one.name for one in buffers if any(_reads(each, one.name) for each in reached))
        return Entry(
            name=name,
            buffers=tuple(sorted(buffers, key=lambda one: one.binding)),
            uniforms=tuple(sorted(uniforms, key=lambda one: one.binding)),
            group_size=self._group_size(function),
            read=read,
            group_bytes=group_bytes,
        )

    def _reached(self, function: _Function) -> Iterator[_Function]:
        """Yield a function, and all functions that it calls, directly or indirectly."""
        found = {function.name: function}
        waiting = [function]
        while waiting:
            one = waiting.pop()
            yield one
            for word in one.words:
                if word in self.functions and word not in found:
                    found[word] = self.functions[word]
                    waiting.append(found[word])

    def _used(self, function: _Function) -> set[str]:
        return {
            word
            for one in self._reached(function)
            for before, word in zip(("", *one.words), one.words, strict=False)
            if word in self.variables and word not in one.parameters and before != "."
        }

    def _group_size(self, function: _Function) -> tuple[int | Override, int | Override, int | Override]:
        given = [self._dimension(function, words) for words in _split(function.attributes.get("workgroup_size", ()))]
        x, y, z = (*given, 1, 1, 1)[:3]
        return x, y, z

    def _dimension(self, function: _Function, words: Sequence[str]) -> int | Override:
        if len(words) == 1 and words[0] in self.overrides:
            return self.overrides[words[0]]
        value = self._integer(words)
        if value is None:
            raise CompileError(
                f"{function.name}: @workgroup_size must hold numbers, constants or the names of override constants, "
                f"got '{' '.join(words)}'"
            )
        return value

    def _storage_shape(self, place: str, words: Sequence[str]) -> Shape:
        shape = self._shape(words)
        if shape is None:
            raise CompileError(
                f"{place} has the type {''.join(words)}, which no tensor has; use array<T> with T one of "
                f"{', '.join(SIZES)}, a vector of two or four of them, or atomic<T>"
            )
        if shape.lanes == 3:
            raise CompileError(
                f"{place}: an element {shape.spelling} takes 16 bytes in a buffer, but three numbers of a tensor "
                f"take 12; use array<{shape.scalar}>"
            )
        return shape

    def _members(self, place: str, variable: str, words: Sequence[str]) -> tuple[tuple[str, Shape], ...]:
        resolved = self._resolved(words)
        if len(resolved) == 1 and resolved[0] in self.structures:
            parts = [_attributes(part) for part in _split(self.structures[resolved[0]])]
            listed = [(part[0], part[2:]) for _, part in parts if len(part) > 2]
            plain = not any(attributes for attributes, _ in parts)
        else:
            listed, plain = [(variable, list(words))], True
        found = [(name, self._shape(kind)) for name, kind in listed]
        members = tuple((name, shape) for name, shape in found if shape is not None and shape.count == 1)
        if not plain or len(members) != len(found):
            raise CompileError(
                f"{place} has the type {''.join(words)}; a uniform variable is a number, a vector or a structure of "
                "them, without attributes"
            )
        return members

    def _bytes(self, words: Sequence[str]) -> int:
        """Return the bytes of a workgroup variable, or 0 if the source does not state its size."""
        words = self._resolved(words)
        if words[:2] == ["array", "<"]:
            element, *length = _split(words[2:-1])
            return self._bytes(element) * (self._integer(length[0]) or 0) if length else 0
        if len(words) == 1 and words[0] in self.structures:
            parts = (_attributes(part)[1] for part in _split(self.structures[words[0]]))
            return sum(self._bytes(part[2:]) for part in parts if len(part) > 2)
        shape = self._shape(words)
        return 0 if shape is None else shape.size

    def _shape(self, words: Sequence[str]) -> Shape | None:
        words = self._resolved(words)
        if words[:2] == ["array", "<"]:
            element, *length = _split(words[2:-1])
            inner = self._shape(element)
            count = self._integer(length[0]) if length else None
            if inner is None or inner.count != 1 or (length and count is None):
                return None
            return Shape(inner.scalar, inner.lanes, count)
        if words[:2] == ["atomic", "<"]:
            return self._shape(words[2:-1])
        if len(words) == 1 and words[0] in SIZES:
            return Shape(words[0])
        vector = _VECTOR.match(words[0]) if words else None
        if vector is None:
            return None
        element = self._resolved(words[2:-1]) if len(words) > 1 else [_SHORT.get(vector[2] or "", "")]
        return Shape(element[0], int(vector[1])) if len(element) == 1 and element[0] in SIZES else None

    def _resolved(self, words: Sequence[str]) -> list[str]:
        seen: set[str] = set()
        while len(words) == 1 and words[0] in self.aliases and words[0] not in seen:
            seen.add(words[0])
            words = self.aliases[words[0]]
        return [word for word in words if word != ","] if words[-1:] == [","] else list(words)

    def _integer(self, words: Sequence[str]) -> int | None:
        """Return the value of an integer expression of numbers and constants, or None for any other expression."""
        parts = []
        for position, word in enumerate(words):
            number = _INTEGER.match(word)
            if number is not None:
                parts.append(str(int(number[1], 0) if number[1][:2].lower() == "0x" else int(number[1])))
            elif word in self.integers:
                parts.append(str(self.integers[word]))
            elif word in self.overrides and self.overrides[word].default is not None:
                parts.append(str(self.overrides[word].default))
            elif word in "()+-*%<>":
                parts.append(word)
            elif word == "/":
                parts.append("//")
            elif not (word in ("u32", "i32") and words[position + 1 : position + 2] == ["("]):
                return None
        try:
            return _value(ast.parse("".join(parts), mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError):
            return None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            return int(_OPERATORS[type(operation)](_value(left), _value(right)))
        case _:
            raise ValueError("not an integer expression")


def _attributes(words: Sequence[str]) -> tuple[dict[str, Sequence[str]], list[str]]:
    """Return the attributes at the beginning, each with the words in its parentheses, and the words after them."""
    found: dict[str, Sequence[str]] = {}
    position = 0
    while position + 1 < len(words) and words[position] == "@":
        name = words[position + 1]
        position += 2
        inner: Sequence[str] = ()
        if words[position : position + 1] == ["("]:
            closing = closing_bracket(words, position)
            inner = words[position + 1 : closing]
            position = closing + 1
        found[name] = inner
    return found, list(words[position:])


def _split(words: Sequence[str]) -> list[list[str]]:
    """Return the words, split at commas that are not inside brackets. Empty parts are left out."""
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word in "([<") - (word in ")]>")
        if word == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _names(parameters: Sequence[str]) -> Iterator[str]:
    for part in _split(parameters):
        _, words = _attributes(part)
        yield from words[:1]


def _reads(function: _Function, variable: str) -> bool:
    """Return whether a function may read a variable: whether it does anything except write its elements and ask for its
    length."""
    words = function.words
    for position, word in enumerate(words):
        if word != variable or words[position - 1 : position] == ["."]:
            continue
        if list(words[max(0, position - 3) : position]) == ["arrayLength", "(", "&"]:
            continue
        after = position + 1
        while words[after : after + 1] == ["["]:
            after = closing_bracket(words, after) + 1
        if words[after : after + 1] != ["="] or words[after + 1 : after + 2] == ["="]:
            return True
    return False

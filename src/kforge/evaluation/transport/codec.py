"""Writes and reads the values of messages in a binary form, with limits on every size.

Reading never allocates more than the length of what is read, and runs no code that the sender chose.
"""

from __future__ import annotations

import itertools
import keyword
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kforge.errors import ChannelError

MAX_DEPTH = 16
"""Most levels of nested values in a message."""
MAX_NODES = 100_000
"""Most values in a message."""
MAX_DIMENSIONS = 16

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool",
    "uint8", "int8", "int16", "int32", "int64",
)  # fmt: skip
"""Names of the torch dtypes that a message may contain. A frame holds the index in this list."""


@dataclass(frozen=True)
class TensorRef:
    """Describes a tensor without its values: dtype, shape, strides, and its offset in a shared region or its address.

    The offset is -1 if the values were not sent.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class DtypeName:
    """A torch dtype that is itself an argument of a call."""

    name: str


Tree = Any
"""A value that a message may contain: None, bool, int, float, complex, str, TensorRef, DtypeName; a tuple, named tuple
or list of values; a dict of values by text and 64-bit integers."""

Rebuild = Callable[[str, tuple[str, ...], tuple[Any, ...]], Any]
"""Returns the named tuple with these names of its class and its fields, and these values."""


def is_key(key: Any) -> bool:
    """Return whether a message may contain a dict with this key."""
    return isinstance(key, str) or (type(key) is int and -(2**63) <= key < 2**63)


def keys_in(value: Any) -> list[Any]:
    """Return the keys of all dicts in a nested value."""
    if isinstance(value, dict):
        return [*value, *keys_in([*value.values()])]
    return [key for item in value for key in keys_in(item)] if isinstance(value, list | tuple) else []


def names_of(value: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the names of a named tuple's class and fields. Empty for all other tuples, and for names that are no
    identifiers."""
    fields = getattr(type(value), "_fields", None)
    if not isinstance(fields, tuple) or len(fields) != len(value):
        return ()
    names = (type(value).__name__, *fields)
    return names if are_names(names) else ()


def are_names(names: tuple[Any, ...]) -> bool:
    """Return whether these can be the names of a class and of its fields."""
    return all(type(name) is str and name.isidentifier() and not keyword.iskeyword(name) for name in names)


class Writer:
    """Encodes the values of one payload into `parts`."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def pack(self, form: str, *values: Any) -> None:
        self.parts.append(struct.pack("!" + form, *values))

    def text(self, value: str) -> None:
        data = value.encode("utf-8", "replace")
        self.pack("I", len(data))
        self.parts.append(data)

    def tree(self, value: Tree) -> None:  # noqa: C901 - one branch per type of the format
        match value:
            case None:
                self.pack("c", b"N")
            case bool():
                self.pack("c?", b"B", value)
            case int() if -(2**63) <= value < 2**63:
                self.pack("cq", b"I", value)
            case float():
                self.pack("cd", b"F", value)
            case complex():
                self.pack("cdd", b"C", value.real, value.imag)
            case str():
                self.pack("c", b"S")
                self.text(value)
            case DtypeName():
                self.pack("cB", b"Y", _dtype_code(value.name))
            case TensorRef():
                self.pack("cBB", b"T", _dtype_code(value.dtype), len(value.shape))
                self.pack(f"{2 * len(value.shape)}q", *value.shape, *value.strides)
                self.pack("q", value.offset)
            case tuple() if names := names_of(value):
                self.pack("cI", b"=", len(value))
                for name in names:
                    self.text(name)
                self.items(value)
            case tuple() | list():
                self.pack("cI", b"(" if isinstance(value, tuple) else b"[", len(value))
                self.items(value)
            case dict() if all(isinstance(key, str) for key in value):
                self.pack("cI", b"{", len(value))
                for key, item in value.items():
                    self.text(key)
                    self.tree(item)
            case dict() if all(map(is_key, value)):
                self.pack("cI", b"<", len(value))
                for key, item in value.items():
                    self.tree(key)
                    self.tree(item)
            case _:
                raise TypeError(f"a {type(value).__name__} cannot be sent to a worker")

    def items(self, values: tuple[Tree, ...] | list[Tree]) -> None:
        for kind, group in itertools.groupby(values, type):
            if kind is int:  # many addresses are written inside a timed block: all at once
                numbers = list(group)
                if min(numbers) < -(2**63) or max(numbers) >= 2**63:
                    raise TypeError("an int of more than 64 bits cannot be sent to a worker")
                marked = itertools.chain.from_iterable((b"I", number) for number in numbers)
                self.pack("cq" * len(numbers), *marked)
            else:
                for value in group:
                    self.tree(value)


def _dtype_code(name: str) -> int:
    try:
        return DTYPES.index(name)
    except ValueError:
        raise TypeError(f"tensors of dtype {name} cannot be sent to a worker") from None


class Reader:
    """Decodes the values of one payload. Every read checks the bounds, and raises ChannelError.

    Without `rebuild`, named tuples are read as plain ones: no class is made from names that the sender chose.
    """

    def __init__(self, payload: bytes, rebuild: Rebuild | None = None) -> None:
        self.payload = payload
        self.rebuild = rebuild
        self.position = 0
        self.nodes = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if count < 0 or end > len(self.payload):
            raise ChannelError("frame ends before its content does")
        data = self.payload[self.position : end]
        self.position = end
        return data

    def unpack(self, form: str) -> tuple[Any, ...]:
        layout = struct.Struct("!" + form)
        return layout.unpack(self.take(layout.size))

    def text(self) -> str:
        (length,) = self.unpack("I")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise ChannelError("text in a frame is not UTF-8") from None

    def tree(self, depth: int = 0) -> Tree:  # noqa: C901 - one branch per type of the format
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise ChannelError("value in a frame is nested too deeply or has too many parts")
        (tag,) = self.unpack("c")
        match tag:
            case b"N":
                return None
            case b"B":
                return self.unpack("?")[0]
            case b"I":
                return self.unpack("q")[0]
            case b"F":
                return self.unpack("d")[0]
            case b"C":
                return complex(*self.unpack("dd"))
            case b"S":
                return self.text()
            case b"Y":
                return DtypeName(self._dtype())
            case b"T":
                return self._tensor()
            case b"(":
                return tuple(self.tree(depth + 1) for _ in range(self._count()))
            case b"=":
                return self._named(depth)
            case b"[":
                return [self.tree(depth + 1) for _ in range(self._count())]
            case b"{":
                return {self.text(): self.tree(depth + 1) for _ in range(self._count())}
            case b"<":
                return {self._key(depth + 1): self.tree(depth + 1) for _ in range(self._count())}
        raise ChannelError(f"unknown tag {tag!r} in a frame")

    def _named(self, depth: int) -> Any:
        count = self._count()
        name, *fields = names = tuple(self.text() for _ in range(count + 1))
        if not are_names(names):
            raise ChannelError("a name of a named tuple in a frame is no identifier")
        values = tuple(self.tree(depth + 1) for _ in range(count))
        return values if self.rebuild is None else self.rebuild(name, tuple(fields), values)

    def _key(self, depth: int) -> str | int:
        key = self.tree(depth)
        if not is_key(key):
            raise ChannelError("a key of a dict in a frame is neither text nor an integer")
        return key  # type: ignore[no-any-return]

    def _count(self) -> int:
        count: int = self.unpack("I")[0]
        if count > len(self.payload) - self.position:  # every item takes at least one byte
            raise ChannelError("frame announces more items than it holds")
        return count

    def _dtype(self) -> str:
        (code,) = self.unpack("B")
        if code >= len(DTYPES):
            raise ChannelError(f"unknown dtype code {code} in a frame")
        return DTYPES[code]

    def _tensor(self) -> TensorRef:
        dtype = self._dtype()
        (dimensions,) = self.unpack("B")
        if dimensions > MAX_DIMENSIONS:
            raise ChannelError(f"tensor with {dimensions} dimensions in a frame")
        numbers = self.unpack(f"{2 * dimensions}q")
        (offset,) = self.unpack("q")
        return TensorRef(dtype, numbers[:dimensions], numbers[dimensions:], offset)


# How a field of a message is written and read, by its declared type.
WRITE: dict[Any, Callable[[Writer, Any], None]] = {
    str: Writer.text,
    int: lambda writer, value: writer.pack("q", value),
    bool: lambda writer, value: writer.pack("?", value),
    float: lambda writer, value: writer.pack("d", value),
    Any: Writer.tree,
}
READ: dict[Any, Callable[[Reader], Any]] = {
    str: Reader.text,
    int: lambda reader: reader.unpack("q")[0],
    bool: lambda reader: reader.unpack("?")[0],
    float: lambda reader: reader.unpack("d")[0],
    Any: Reader.tree,
}

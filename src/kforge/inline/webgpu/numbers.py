"""Packs the numbers of a launch into the bytes of uniform variables. A number that does not fit raises LaunchError."""

from __future__ import annotations

import operator
import struct
from typing import TYPE_CHECKING, Any

from kforge.inline.errors import LaunchError
from kforge.inline.webgpu.declarations import SIZES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.inline.webgpu.declarations import Entry, Shape

_FORMS = {"f16": "e", "f32": "f", "f64": "d", "i32": "i", "u32": "I", "i64": "q", "u64": "Q"}
_LEAST_ALIGNMENT = 16
"""The size of a uniform variable is a multiple of this many bytes."""


class Block:
    """The uniform variables of one kernel."""

    def __init__(self, entry: Entry) -> None:
        self._kernel = entry.name
        self._uniforms = entry.uniforms
        self.names = tuple(name for uniform in entry.uniforms for name, _ in uniform.members)
        self.count = len(self.names)

    def pack(self, values: Sequence[Any]) -> list[bytes]:
        """Return the bytes of each uniform variable. Raises LaunchError if a number does not fit its type."""
        given = iter(values)
        packed = []
        for uniform in self._uniforms:
            content = bytearray()
            for name, shape in uniform.members:
                content += bytes(-len(content) % shape.alignment)
                content += _packed(f"{self._kernel}: number {name}", shape, next(given))
            content += bytes(-len(content) % _LEAST_ALIGNMENT)
            packed.append(bytes(content))
        return packed


def _packed(place: str, shape: Shape, value: Any) -> bytes:
    if shape.lanes == 1:
        return _one(place, shape.scalar, value)
    if not isinstance(value, list | tuple) or len(value) != shape.lanes:
        raise LaunchError(f"{place} is {shape.spelling}: must be a list of {shape.lanes} numbers, got {value!r}")
    return b"".join(_one(place, shape.scalar, one) for one in value)


def _one(place: str, scalar: str, value: Any) -> bytes:
    try:
        # unlike float(value), these accept every number and no text
        number = value.__float__() if scalar.startswith("f") else operator.index(value)
    except (AttributeError, TypeError, ValueError):
        kind = "a float" if scalar.startswith("f") else "an int"
        raise LaunchError(f"{place} is {scalar}: must be {kind}, got {type(value).__name__}") from None
    except OverflowError:
        raise LaunchError(f"{place} must fit {scalar}, got an int that is too large") from None
    try:
        return struct.pack(f"<{_FORMS[scalar]}", number)
    except (struct.error, OverflowError):
        if scalar.startswith("f"):
            raise LaunchError(f"{place} must fit {scalar}, got {number!r}") from None
        bits = 8 * SIZES[scalar]
        low, high = (0, 2**bits - 1) if scalar.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        raise LaunchError(f"{place} must fit {scalar} ({low} to {high}), got {number}") from None

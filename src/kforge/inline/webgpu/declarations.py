"""What a launch knows of a WGSL source: kernels, and the variables that take their arguments."""

from __future__ import annotations

from dataclasses import dataclass

SIZES = {"f16": 2, "f32": 4, "i32": 4, "u32": 4, "f64": 8, "i64": 8, "u64": 8}
"""Bytes of each scalar type; the last three are extensions of `wgpu`, not of every browser."""


@dataclass(frozen=True)
class Shape:
    """A scalar, a vector, or an array of either."""

    scalar: str
    lanes: int = 1
    count: int | None = 1
    """Number of elements of an array; None for an array as long as its tensor."""

    @property
    def spelling(self) -> str:
        return self.scalar if self.lanes == 1 else f"vec{self.lanes}<{self.scalar}>"

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return SIZES[self.scalar] * self.lanes

    @property
    def alignment(self) -> int:
        """The multiple of bytes at which one element begins."""
        return SIZES[self.scalar] * (4 if self.lanes == 3 else self.lanes)


@dataclass(frozen=True)
class Buffer:
    """A storage variable: it takes a tensor."""

    name: str
    binding: int
    shape: Shape
    writable: bool


@dataclass(frozen=True)
class Uniform:
    """A uniform variable: it takes one number for each member."""

    name: str
    binding: int
    members: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True)
class Override:
    """A constant that gets its value with the pipeline."""

    name: str
    key: str
    """The name, or the number of its `@id`."""
    default: int | None
    """None if the declaration has no default, or one that is not an integer."""


@dataclass(frozen=True)
class Entry:
    """A kernel."""

    name: str
    buffers: tuple[Buffer, ...]
    uniforms: tuple[Uniform, ...]
    group_size: tuple[int | Override, int | Override, int | Override]
    read: frozenset[str]
    """The buffers of which a value is, or may be, read."""
    group_bytes: int
    """Bytes of workgroup memory, as far as their number is in the source."""

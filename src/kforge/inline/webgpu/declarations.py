"""Records of the kernels in a WGSL source and of the variables that take their arguments. A launch needs them."""

from __future__ import annotations

from dataclasses import dataclass

SIZES = {"f16": 2, "f32": 4, "i32": 4, "u32": 4, "f64": 8, "i64": 8, "u64": 8}
"""Bytes of each scalar type. The last three types are extensions of `wgpu` that not every browser has."""


@dataclass(frozen=True)
class Shape:
    """The type of a variable: a scalar, a vector, or an array of either."""

    scalar: str
    lanes: int = 1
    count: int | None = 1
    """Number of elements of an array. None if the array is as long as its tensor."""

    @property
    def spelling(self) -> str:
        return self.scalar if self.lanes == 1 else f"vec{self.lanes}<{self.scalar}>"

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return SIZES[self.scalar] * self.lanes

    @property
    def alignment(self) -> int:
        """Alignment of one element in bytes."""
        return SIZES[self.scalar] * (4 if self.lanes == 3 else self.lanes)


@dataclass(frozen=True)
class Buffer:
    """A storage variable, which takes a tensor."""

    name: str
    binding: int
    shape: Shape
    writable: bool


@dataclass(frozen=True)
class Uniform:
    """A uniform variable, which takes one number for each of its members."""

    name: str
    binding: int
    members: tuple[tuple[str, Shape], ...]


@dataclass(frozen=True)
class Override:
    """An override constant, whose value is set when the kernel's pipeline is made."""

    name: str
    key: str
    """The constant's name, or the number in its `@id` attribute."""
    default: int | None
    """The default value. None if the constant has no default, or one that is not an integer."""


@dataclass(frozen=True)
class Entry:
    """A kernel: its variables and its group size."""

    name: str
    buffers: tuple[Buffer, ...]
    uniforms: tuple[Uniform, ...]
    group_size: tuple[int | Override, int | Override, int | Override]
    read: frozenset[str]
    """Names of the buffers that the kernel reads, or may read."""
    group_bytes: int
    """Bytes of workgroup memory. Variables whose size the source does not state are not counted."""

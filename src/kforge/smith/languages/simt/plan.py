"""The choices of a plan for SIMT kernels, and the moves: changes of one choice that the smith can recommend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kforge.smith.plan import Move, Plan


@dataclass(frozen=True)
class SimtPlan(Plan):
    """The choices for kernels in SIMT languages, in addition to those of all languages."""

    ranges: ClassVar[dict[str, tuple[int, int]]] = Plan.ranges | {
        "group": (32, 1024), "each": (1, 64), "vector": (0, 1), "held": (0, 32), "parts": (1, 1024), "tile": (16, 128),
        "products": (0, 2),
    }  # fmt: skip

    group: int = 256
    """Number of threads of a thread group."""
    each: int = 8
    """Number of elements of a row that one thread reduces. Longer rows are shared by more threads."""
    vector: int = 1
    """1: elementwise kernels read and write four neighbouring elements at once. 0: one element at a time."""
    held: int = 16
    """Most elements of a row that a thread keeps in registers from one sweep to the next."""
    parts: int = 64
    """Most thread groups that share one long row or column."""
    tile: int = 64
    """Number of rows and columns of a tile of a matrix product."""
    products: int = 1
    """Which matrix products and convolutions get a kernel of kforge on a device whose library is fast: 0 none, 1 those
    of at most `LARGE` multiplications (`products.py`), 2 all. Attention gets a kernel there only with 2."""


MOVES = (
    Move(
        "memory traffic",
        "reduce up to 16 elements of a row per thread before adding threads",
        "more loads are in flight before the first result is needed, and fewer threads wait for each other",
        "each", 16,
    ),
    Move(
        "latency",
        "reduce up to 4 elements of a row per thread before adding threads",
        "more threads hide the latency of memory",
        "each", 4,
    ),
    Move(
        "occupancy",
        "use thread groups of 128 threads",
        "in smaller groups, fewer threads wait at a barrier",
        "group", 128,
    ),
    Move(
        "latency",
        "use thread groups of 512 threads",
        "more threads share a row",
        "group", 512,
    ),
    Move(
        "occupancy",
        "read rows again in each sweep instead of keeping them in registers",
        "each thread needs fewer registers, so more threads run at the same time",
        "held", 0,
    ),
    Move(
        "memory traffic",
        "keep longer rows in registers",
        "elements in registers need not be read again",
        "held", 32,
    ),
    Move(
        "latency",
        "share a long row among up to 256 thread groups",
        "a larger part of the device works on the row",
        "parts", 256,
    ),
    Move(
        "arithmetic",
        "compute tiles of 128 rows and columns in matrix products",
        "each element that is read is used in more multiplications",
        "tile", 128,
    ),
    Move(
        "occupancy",
        "compute tiles of 32 rows and columns in matrix products",
        "there are more tiles, so more thread groups share the device",
        "tile", 32,
    ),
    Move(
        "arithmetic",
        "leave matrix products to the library",
        "the library may be faster than the smith's kernel",
        "products", 0,
    ),
    Move(
        "launches",
        "write a kernel for every matrix product and convolution",
        "the operations after a product then run in its kernel",
        "products", 2,
    ),
    Move(
        "memory traffic",
        "read and write one element at a time in elementwise kernels",
        "more threads run, and each needs fewer registers",
        "vector", 0,
    ),
)  # fmt: skip

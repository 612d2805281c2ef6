"""The choices for Triton kernels, and the moves from one choice to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kforge.smith.plan import Move, Plan


@dataclass(frozen=True)
class TritonPlan(Plan):
    ranges: ClassVar[dict[str, tuple[int, int]]] = Plan.ranges | {
        "block": (1, 65536), "tile": (1, 65536), "columns": (1, 8192), "share": (1, 1024), "relay": (0, 1),
        "split": (0, 2),
    }  # fmt: skip

    block: int = 1024
    """Elements per program of an elementwise kernel."""
    tile: int = 4096
    """Elements per program of a reduction: several short rows, or a piece of a long one."""
    columns: int = 256
    """Most columns that a program reduces side by side."""
    share: int = 32
    """Elements of a block per thread; fewer means more warps."""
    relay: int = 1
    """Whether the programs of two sweeps over much memory take turns in one kernel."""
    split: int = 1
    """Which products are computed by halves on matrix units: 0 none, 1 those that gain by a rough estimate, 2 all."""


MOVES = (
    Move(
        "memory traffic",
        "give a program 4096 elements of an elementwise kernel",
        "more loads are under way before the first is used",
        "block", 4096,
    ),
    Move(
        "memory traffic",
        "reduce 8192 elements a program",
        "longer stretches of memory are read in one go",
        "tile", 8192,
    ),
    Move(
        "latency",
        "reduce 2048 elements a program",
        "more programs share the device",
        "tile", 2048,
    ),
    Move(
        "latency",
        "reduce 64 columns a program",
        "smaller blocks, of which more are under way at a time",
        "columns", 64,
    ),
    Move(
        "latency",
        "share a block among twice as many threads",
        "fewer registers a thread, and more warps to hide waiting",
        "share", 16,
    ),
    Move(
        "occupancy",
        "share a block among half as many threads",
        "fewer steps between threads for each reduction",
        "share", 64,
    ),
    Move(
        "latency",
        "sweep through long rows one after the other",
        "programs that take turns may wait for one another",
        "relay", 0,
    ),
    Move(
        "arithmetic",
        "compute every matrix product by halves on the matrix units",
        "the library may be slower than it is thought to be",
        "split", 2,
    ),
    Move(
        "arithmetic",
        "leave matrix products to the library",
        "splitting the operands may cost more than the matrix units save",
        "split", 0,
    ),
)  # fmt: skip

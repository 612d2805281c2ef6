"""The choices of a plan for Triton kernels, and the moves: changes of one choice that the smith can recommend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kforge.smith.plan import Move, Plan


@dataclass(frozen=True)
class TritonPlan(Plan):
    """The choices for Triton kernels, in addition to those of all languages."""

    ranges: ClassVar[dict[str, tuple[int, int]]] = Plan.ranges | {
        "block": (1, 65536), "tile": (1, 65536), "columns": (1, 8192), "share": (1, 1024), "relay": (0, 1),
        "split": (0, 2),
    }  # fmt: skip

    block: int = 1024
    """Number of elements per program instance of an elementwise kernel."""
    tile: int = 4096
    """Number of elements per program instance of a reduction: several short rows, or a piece of a long row."""
    columns: int = 256
    """Most columns that one program instance reduces together."""
    share: int = 32
    """Number of elements of a block per thread. A smaller number gives more warps."""
    relay: int = 1
    """1: two sweeps over much memory may share one kernel, in which program instances of both sweeps alternate
    (`reduction/reductions.py`). 0: never."""
    split: int = 1
    """Which matrix products are computed from half-precision parts on matrix units: 0 none, 1 those that a rough
    estimate expects to gain, 2 all."""


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

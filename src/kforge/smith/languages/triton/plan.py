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
        "process 4096 elements per program instance in elementwise kernels",
        "more loads are in flight before the first result is needed",
        "block", 4096,
    ),
    Move(
        "memory traffic",
        "reduce 8192 elements per program instance",
        "each read covers a longer contiguous range of memory",
        "tile", 8192,
    ),
    Move(
        "latency",
        "reduce 2048 elements per program instance",
        "more program instances share the device",
        "tile", 2048,
    ),
    Move(
        "latency",
        "reduce 64 columns per program instance",
        "blocks are smaller, and more of them run at the same time",
        "columns", 64,
    ),
    Move(
        "latency",
        "use twice as many threads per block",
        "each thread needs fewer registers, and more warps hide the latency of memory",
        "share", 16,
    ),
    Move(
        "occupancy",
        "use half as many threads per block",
        "each reduction needs fewer exchanges between threads",
        "share", 64,
    ),
    Move(
        "latency",
        "run the two sweeps over long rows in separate kernels",
        "if both sweeps share a kernel, the second may wait for the first",
        "relay", 0,
    ),
    Move(
        "arithmetic",
        "compute every matrix product from half-precision parts on the matrix units",
        "the library may be slower than the smith's estimate",
        "split", 2,
    ),
    Move(
        "arithmetic",
        "leave matrix products to the library",
        "splitting the factors into parts may cost more time than the matrix units save",
        "split", 0,
    ),
)  # fmt: skip

"""The choices of a plan for C++ kernels, and the moves: changes of one choice that the smith can recommend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from kforge.platforms.host import MATRIX_UNIT, SHORT_REGISTERS
from kforge.smith.plan import Move, Plan

if TYPE_CHECKING:
    from kforge.records import Profile

SHORT = 50e-6
"""Seconds of a call below which waking up threads may take most of the time."""


@dataclass(frozen=True)
class CppPlan(Plan):
    """The choices for C++ kernels, in addition to those of all languages."""

    ranges: ClassVar[dict[str, tuple[int, int]]] = Plan.ranges | {
        "threads": (0, 4096), "tile": (1, 8192), "keep": (0, 4096), "matrix": (0, 3), "scanned": (0, 1),
        "lanes": (0, 256),
    }  # fmt: skip

    threads: int = 1
    """Factor on the least work for which threads are started. 0: every kernel uses threads."""
    tile: int = 256
    """Number of columns that a column kernel processes together."""
    keep: int = 8
    """Number of operations above which a value is stored for the next sweep; cheaper values are computed again."""
    matrix: int = 0
    """Which matrix products run on the processor's matrix unit instead of torch's library: 0 none, 1 those expected to
    be much faster, 2 those that may be faster, 3 all that the unit supports."""
    scanned: int = 1
    """1: the elements of a row are scanned several at a time, across a vector register. 0: one element after the other.

    On aarch64 a register holds only two doubles, and 0 is faster: running sums of rows of 1024 take 0.26 ms on two
    cores of a Neoverse N1, and 0.45 ms with 1.
    """
    lanes: int = 0
    """Number of partial sums of a row. 0: only as many as one vector register holds, so that each addition waits for
    the one before."""

    @classmethod
    def first(cls, features: frozenset[str]) -> Self:
        short = SHORT_REGISTERS in features
        return cls(matrix=int(MATRIX_UNIT in features), scanned=int(not short), lanes=16 if short else 0)

    def simpler(self) -> Self | None:
        return replace(self, matrix=0) if self.matrix else super().simpler()


def _is_short(profile: Profile) -> bool:
    return profile.seconds < SHORT


def _is_long(profile: Profile) -> bool:
    return not _is_short(profile)


MOVES = (
    Move(
        "matrix products",
        "use the matrix unit for every product that it may compute faster than the library",
        "products of bfloat16 parts are as exact as float32, and may be faster",
        "matrix", 2, when=_is_long, from_none=False,
    ),
    Move(
        "starting threads",
        "use one thread for all kernels except those with much more work",
        "in a call this short, waking threads takes most of the time",
        "threads", 64, when=_is_short,
    ),
    Move(
        "starting threads",
        "use several threads in smaller kernels, too",
        "these kernels run on one thread, and several threads could share their work",
        "threads", 0, when=_is_long,
    ),
    Move(
        "matrix products",
        "leave matrix products to the library",
        "for these sizes, the library may be faster than the smith's kernel",
        "matrix", 0, when=_is_long,
    ),
    Move(
        "dependent arithmetic",
        "scan rows one element at a time",
        "sums across a vector register may cost more than they save",
        "scanned", 0,
    ),
    Move(
        "arithmetic",
        "scan several neighbouring elements of a row at once, in vector registers",
        "elementwise operations before and after a scan then also process several elements at once",
        "scanned", 1,
    ),
    Move(
        "memory traffic",
        "process 1024 neighbouring columns at a time",
        "each read covers a longer contiguous range of memory",
        "tile", 1024,
    ),
    Move(
        "cache misses",
        "process 64 neighbouring columns at a time",
        "the sums of 64 columns fit into the L1 cache",
        "tile", 64,
    ),
    Move(
        "cache misses",
        "compute values again in the next sweep instead of storing them",
        "computing a value again may be faster than storing and loading it",
        "keep", 1000,
    ),
    Move(
        "arithmetic",
        "store every value for the next sweep instead of computing it again",
        "storing and loading a value may be faster than computing it again",
        "keep", 1,
    ),
)  # fmt: skip

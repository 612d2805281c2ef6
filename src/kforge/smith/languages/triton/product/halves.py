"""Splits float32 numbers into two half-precision parts, x = high + low, which keep 22 bits. Matrix units multiply such
parts fast.

Each row is first scaled by a power of two that makes its largest element about 2^13, so that no element that matters
underflows. The inverse of the scale is stored, to undo the scaling. It is negative if the row has an element that is
not finite. The low parts of such elements are zero, and the product is computed from the high parts alone, which gives
the same infinities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages.indices import NARROW, IndexText, block_of, reach, summed, times
from kforge.smith.languages.triton.statements import launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.languages import Context
    from kforge.smith.patterns.products import Factor

TILE = 128
"""Most rows of a tile, and most columns."""
STEP = 64
"""Number of elements of a row that a matrix unit sums; longer sums are continued in single precision."""
HELD = 8192
"""Number of elements that a program instance of a splitting kernel keeps in registers."""
WHOLE = 2 * HELD
"""Number of elements that a program instance of a splitting kernel keeps in registers if rows are not contiguous. It is
larger than `HELD`, because reading such rows twice would cost more than the registers."""
PROCESSORS = 132
"""Number of multiprocessors of an H200."""

SIZE = ("size = tl.abs(value)", 'finite = size < float("inf")')
SCALE = (
    "# The scale is the power of two that gives the largest element the exponent 13. Its limit keeps its inverse",
    "# above zero.",
    "exponent = tl.minimum(267 - (largest.to(tl.int32, bitcast=True) >> 23), 253)",
    "scale = (exponent << 23).to(tl.float32, bitcast=True)",
    "inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)",
    "inverse = tl.where(odd > 0.0, -inverse, inverse)",
)
HALVES = (
    "scaled = value * scale",
    "high = scaled.to(tl.float16)",
    "low = tl.where(finite, scaled - high.to(tl.float32), 0.0).to(tl.float16)",
)
SCALED = (
    "scale = tl.abs(row_scale)[:, None] * tl.abs(column_scale)[None, :]",
    "product = total * tl.minimum(scale, 3e38)",
    "# If an element is infinite or NaN, the high halves alone give the infinities and NaN of the result.",
    "if (tl.min(row_scale, axis=0) < 0.0) | (tl.min(column_scale, axis=0) < 0.0):",
)
"""Triton code that multiplies a block of sums by the scales of its rows and columns. Its last line begins a block for
rows or columns that are not finite."""


@dataclass(frozen=True)
class Rows:
    """The rows of a left factor, or the columns of a right factor, of a batch of products: `batch` matrices of `count`
    rows with `length` elements."""

    memory: str
    batch: int
    count: int
    length: int
    steps: tuple[int, int, int]
    """Strides, in elements: between matrices, between rows, and along a row."""
    offset: int = 0
    """Index of the first element in its memory."""
    whole: int = 0
    """Length of the original rows if one matrix was cut along its rows into several, otherwise 0. The last piece may
    reach beyond this length, where there are no elements."""

    @property
    def size(self) -> int:
        return self.batch * self.count * self.length

    @property
    def runs_along(self) -> bool:
        """Whether rows are read along memory. False only if neighbours in memory belong to different rows."""
        return self.steps[2] == 1 or self.steps[1] != 1


def rows_of(factor: Factor, batch: int, count: int, length: int, context: Context) -> Rows:
    """Return the rows of a factor. For its columns, pass the transposed factor."""
    memory = context.elements(factor.name) if factor.copied else context.memory(factor.base)
    return Rows(memory, batch, count, length, (factor.batch, factor.down, factor.across), factor.offset)


@dataclass(frozen=True)
class Parts:
    """The half-precision parts of rows, in memory of their own. The number and the length of rows are padded with zeros
    to whole tiles."""

    name: str
    given: Rows
    narrowest: int = TILE // 2
    """Fewest rows of a tile."""
    step: int = STEP
    """The length of rows is rounded up to a multiple of this number."""

    @property
    def tile(self) -> int:
        return min(TILE, max(self.narrowest, block_of(self.given.count)))

    @property
    def length(self) -> int:
        return -(-self.given.length // self.step) * self.step

    @property
    def padded(self) -> int:
        """Number of rows of one matrix, rounded up to whole tiles."""
        return -(-self.given.count // self.tile) * self.tile

    @property
    def rows(self) -> int:
        return self.given.batch * self.padded

    @property
    def size(self) -> int:
        return self.rows * self.length

    @property
    def steps(self) -> tuple[int, int, int]:
        """Strides of the parts. The order of axes in memory is that of the given rows, so that reading and writing both
        go along memory."""
        if self.given.runs_along:
            return self.padded * self.length, self.length, 1
        return self.padded * self.length, 1, self.padded

    @property
    def at_once(self) -> int:
        """Number of rows per program instance of the splitting kernel."""
        if self.given.runs_along:
            return max(1, min(64, self.tile, HELD // block_of(self.length)))
        # a compromise: more rows read more neighbours together, fewer rows give more program instances
        most = min(32, self.tile) if self.rows >= 64 * PROCESSORS else 16
        return 16 if 16 * block_of(self.length) == WHOLE else most

    @property
    def held(self) -> int:
        """Number of elements of a row that a program instance of the splitting kernel keeps in registers at a time."""
        longest = (HELD if self.given.runs_along else WHOLE) // self.at_once
        length = block_of(self.length)
        return length if length <= longest else HELD // self.at_once

    @property
    def programs(self) -> int:
        return self.rows // self.at_once


def measured(axis: int) -> tuple[str, str]:
    """Return two expressions for each row of a block: its largest finite element, and 1 if some element is not
    finite."""
    return (
        f"tl.max(tl.where(finite, size, 0.0), axis={axis}, keep_dims=True)",
        f"tl.max(tl.where(finite, 0.0, 1.0), axis={axis}, keep_dims=True)",
    )


def split(name: str, parts: Parts) -> str:
    """Return the kernel that scales rows and splits them into parts. If a row fits into registers, memory is read
    once."""
    given, held, whole = parts.given, parts.held, parts.held >= parts.length
    row = IndexText("row", ((0, given.batch), (1, parts.padded)))
    along, across = ("[:, None]", "[None, :]") if given.runs_along else ("[None, :]", "[:, None]")
    axis = 1 if given.runs_along else 0
    far = reach(given.steps, (given.batch, given.count, given.length), given.offset)
    wide = ".to(tl.int64)" if max(parts.size, far) >= NARROW else ""
    start = str(given.offset) if given.offset else ""
    source = f"x + {summed(row.address(given.steps[:2]), times('k', given.steps[2]), start)}"
    target = summed(row.address(parts.steps[:2]), times("k", parts.steps[2]))
    masks = [] if given.count == parts.padded else [f"({row.name} % {parts.padded} < {given.count})"]
    masks += [f"(k < {given.length})"] if given.length % held else []
    if given.batch * given.length > given.whole > 0:
        masks.append(f"({row.name} // {parts.padded} * {given.length} + k < {given.whole})")
    inside = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    ends = f", mask=k < {parts.length}" if parts.length % held else ""
    k = f"tl.arange(0, {held}){across}"
    read = [f"value = tl.load({source}{inside})", *SIZE]
    shape = f"[{parts.at_once}, 1]" if given.runs_along else f"[1, {parts.at_once}]"
    measure = [
        f"{each} = tl.maximum({each}, {found})" for each, found in zip(("largest", "odd"), measured(axis), strict=True)
    ]
    write = [
        *HALVES,
        f"tl.store(parts + {target}, high{ends})",
        f"tl.store(parts + {parts.size} + {target}, low{ends})",
    ]
    lines = [
        f"row = (tl.program_id(0){wide} * {parts.at_once} + tl.arange(0, {parts.at_once})){along}",
        f"largest = tl.zeros({shape}, tl.float32)",
        f"odd = tl.zeros({shape}, tl.float32)",
        *([f"k = {k}", *read, *measure] if whole else _loop(given.length, held, k, [*read, *measure])),
        *SCALE,
        "tl.store(inverses + row, inverse)",
        *(write if whole else _loop(parts.length, held, k, [*read, *write])),
    ]
    head = f"# {given.batch * given.count} rows of {given.length}, scaled and split into halves\n@triton.jit\n"
    return f"{head}def {name}(x, parts, inverses):\n" + indented(lines)


def _loop(end: int, step: int, k: str, lines: list[str]) -> list[str]:
    return [f"for start in range(0, {end}, {step}):", *("    " + line for line in (f"k = start + {k}", *lines))]


def indented(lines: list[str]) -> str:
    """Return the lines as the body of a function, indented by four spaces."""
    return "\n".join("    " + line for line in lines) + "\n"


def split_steps(name: str, node: str, sides: Sequence[Parts], context: Context) -> tuple[list[str], list[str]]:
    """Return the Python statements that split the factors, and the arguments of the multiplying kernel: parts and
    scales."""
    steps: list[str] = []
    given: list[str] = []
    for each in sides:
        halves, scales = f"{node}_{each.name}_halves", f"{node}_{each.name}_scales"
        steps += [
            f"{halves} = {context.empty((2 * each.size,), 'float16')}",
            f"{scales} = {context.empty((each.rows,), 'float32')}",
            launch(f"{name}_{each.name}", [each.programs], [each.given.memory, halves, scales], 8),
        ]
        given += [halves, scales]
    return steps, given

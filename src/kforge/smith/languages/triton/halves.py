"""Numbers of single precision as two halves: x = high + low, to 22 bits.

Each row is scaled by a power of two first, so that its largest element is near 2^13 and nothing that matters is too
small for a half. The scale's inverse is kept to undo it; it is negative where a row is not finite. There the low
halves are zero, and products are those of the high ones, which have the same infinities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages.triton.indices import NARROW, Index, block_of

if TYPE_CHECKING:
    from kforge.smith.languages.triton.factors import Factor

TILE = 128
STEP = 64
"""Elements along the rows between two sums in single precision."""
HELD = 8192
"""Elements of a splitting program."""
PROCESSORS = 132

SIZE = ("size = tl.abs(value)", 'finite = size < float("inf")')
SCALE = (
    "# A power of two that makes the exponent of the largest element 13; not so large that its inverse vanishes.",
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
ODD = """# Where something is not finite, high halves alone say what comes of it.
odd = ({0} < 0.0) | ({1} < 0.0)
if tl.max(tl.max(odd.to(tl.int32), axis=1), axis=0) > 0:"""


@dataclass(frozen=True)
class Parts:
    """A factor's halves in memory of their own, rows and lengths rounded up to whole tiles with zeros."""

    name: str
    factor: Factor

    @property
    def tile(self) -> int:
        return TILE if self.factor.count > TILE // 2 else TILE // 2

    @property
    def length(self) -> int:
        return -(-self.factor.length // STEP) * STEP

    @property
    def padded(self) -> int:
        """Rows of one matrix."""
        return -(-self.factor.count // self.tile) * self.tile

    @property
    def rows(self) -> int:
        return self.factor.batch * self.padded

    @property
    def size(self) -> int:
        return self.rows * self.length

    @property
    def steps(self) -> tuple[int, int, int]:
        """As in the factor itself, so that either is read and written along its memory."""
        if self.factor.runs_along:
            return self.padded * self.length, self.length, 1
        return self.padded * self.length, 1, self.padded

    @property
    def at_once(self) -> int:
        """Rows of a program that splits them."""
        if self.factor.runs_along:
            return max(1, min(64, HELD // block_of(self.length)))
        return 32 if self.rows >= 64 * PROCESSORS else 16  # neighbours are read together, but programs should be many

    @property
    def held(self) -> int:
        """Elements of a row that it has at a time."""
        return min(block_of(self.length), HELD // self.at_once)

    @property
    def programs(self) -> int:
        return self.rows // self.at_once


def split(name: str, parts: Parts) -> str:
    """The kernel that scales rows and splits them: one pass over memory where a row fits into registers."""
    factor, held, whole = parts.factor, parts.held, parts.held >= parts.length
    row = Index("row", ((0, factor.batch), (1, parts.padded)))
    along, across = ("[:, None]", "[None, :]") if factor.runs_along else ("[None, :]", "[:, None]")
    axis = 1 if factor.runs_along else 0
    wide = ".to(tl.int64)" if parts.size >= NARROW or _reach(factor) >= NARROW else ""
    source = f"x + {summed(row.address(factor.steps[:2]), times('k', factor.steps[2]))}"
    target = summed(row.address(parts.steps[:2]), times("k", parts.steps[2]))
    masks = [] if factor.count == parts.padded else [f"({row.name} % {parts.padded} < {factor.count})"]
    masks += [f"(k < {factor.length})"] if factor.length % held else []
    inside = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    ends = f", mask=k < {parts.length}" if parts.length % held else ""
    k = f"tl.arange(0, {held}){across}"
    read = [f"value = tl.load({source}{inside})", *SIZE]
    shape = f"[{parts.at_once}, 1]" if factor.runs_along else f"[1, {parts.at_once}]"
    measure = [
        f"largest = tl.maximum(largest, tl.max(tl.where(finite, size, 0.0), axis={axis}, keep_dims=True))",
        f"odd = tl.maximum(odd, tl.max(tl.where(finite, 0.0, 1.0), axis={axis}, keep_dims=True))",
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
        *([f"k = {k}", *read, *measure] if whole else _loop(factor.length, held, k, [*read, *measure])),
        *SCALE,
        "tl.store(inverses + row, inverse)",
        *(write if whole else _loop(parts.length, held, k, [*read, *write])),
    ]
    head = f"# {factor.batch * factor.count} rows of {factor.length}, scaled and split into halves\n@triton.jit\n"
    return f"{head}def {name}(x, parts, inverses):\n" + indented(lines)


def _loop(end: int, step: int, k: str, lines: list[str]) -> list[str]:
    return [f"for start in range(0, {end}, {step}):", *("    " + line for line in (f"k = start + {k}", *lines))]


def _reach(factor: Factor) -> int:
    sizes = (factor.batch, factor.count, factor.length)
    return sum(step * (size - 1) for step, size in zip(factor.steps, sizes, strict=True)) + 1


def times(index: str, step: int) -> str:
    return "" if not step else index if step == 1 else f"{index} * {step}"


def summed(*terms: str) -> str:
    return " + ".join(term for term in terms if term) or "0"


def indented(lines: list[str]) -> str:
    return "\n".join("    " + line for line in lines) + "\n"

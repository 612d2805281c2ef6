"""Matrix products in single precision on matrix units that multiply halves.

Each row of the left factor and each column of the right one is scaled by a power of two, so that its largest element
is near 2^13, and split into two halves: x = high + low, to 22 bits. Three products make up the whole; the fourth,
low * low, is below the last bit. Matrix units cut sums off instead of rounding them, so sums of 64 steps at most are
left to them, and added up in single precision. That is closer to the exact product than the library's kernels are.

Rows that are not finite have no scale: their products are computed of the high parts alone, which have the same
infinities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.smith.languages import Kernel
from kforge.smith.languages.triton import functions
from kforge.smith.languages.triton.factors import product
from kforge.smith.languages.triton.indices import NARROW, Index, block_of
from kforge.smith.languages.triton.plan import TritonPlan
from kforge.smith.languages.triton.statements import launch
from kforge.smith.languages.triton.tails import tail_of

if TYPE_CHECKING:
    from kforge.smith.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.triton.factors import Factor, Product
    from kforge.smith.languages.triton.tails import Tail
    from kforge.smith.regions import Region

TILE = 128
STEP = 64
"""Elements along the rows between two sums in single precision."""
STAGES = 3
"""Steps whose loads are under way at the same time."""
GROUP = 8
"""Rows of tiles that are worked on together, so that they find each other's columns in the cache."""
HELD = 8192
"""Elements of a splitting program."""

# What the choice rests on, as measured on an H200: operations and bytes a second, and what a launch takes.
SINGLE, HALF, MEMORY, LAUNCH = 50e12, 480e12, 3.5e12, 4e-6
PROCESSORS = 132
WORTH = 0.85
"""Of the library's time that ours may take at most."""


def kernel(name: str, node: Node, tail: Region | None, context: Context) -> Kernel | None:
    """A product and the maps that follow it; None where the library is faster or the maps need more than an element."""
    assert isinstance(context.plan, TritonPlan)
    found = product(node, context) if context.plan.split else None
    if found is None or not (context.plan.split > 1 or _is_worth_it(found)):
        return None
    after = tail_of(node, tail, context)
    if after is None:
        return None
    left, right = Parts("left", found.left), Parts("right", found.right)
    split = [_split(f"{name}_{parts.name}", parts) for parts in (left, right)]
    multiply = _multiply(name, found, (left, right), after)
    steps: list[str] = []
    given: list[str] = []
    for parts in (left, right):
        halves, scales = f"{node.name}_{parts.name}_halves", f"{node.name}_{parts.name}_scales"
        steps += [
            f"{halves} = {context.empty((2 * parts.size,), 'float16')}",
            f"{scales} = {context.empty((parts.rows,), 'float32')}",
            launch(f"{name}_{parts.name}", [parts.programs], [parts.factor.memory, halves, scales], 8),
        ]
        given += [halves, scales]
    if found.bias is not None:
        given.append(found.bias)
    given += after.given
    tiles = left.padded // left.tile * (right.padded // right.tile)
    steps.append(launch(name, [tiles, found.left.batch], given, 8, STAGES))
    text = "\n\n".join([*split, multiply])
    return Kernel(name, text, tuple(steps), functions.used_in(text))


def _is_worth_it(found: Product) -> bool:
    """Whether this beats the library, by a rough count of what both have to do."""
    left, right = Parts("left", found.left), Parts("right", found.right)
    tiles = left.padded // left.tile * (right.padded // right.tile) * found.left.batch
    waves = -(-tiles // PROCESSORS)
    tile = 6 * left.tile * right.tile * left.length / (HALF / PROCESSORS)
    splitting = sum(4 * parts.factor.batch * parts.factor.count * parts.length * 3 for parts in (left, right))
    ours = waves * tile + splitting / MEMORY + 3 * LAUNCH
    operations = 2 * found.size * found.left.length
    memory = 4 * (found.size + sum(each.batch * each.count * each.length for each in (found.left, found.right)))
    return ours < WORTH * (max(operations / SINGLE, memory / MEMORY) + LAUNCH)


# --- splitting ----------------------------------------------------------------------------------------------------


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


def _split(name: str, parts: Parts) -> str:
    """The kernel that scales rows and splits them: one pass over memory where a row fits into registers."""
    factor, held, whole = parts.factor, parts.held, parts.held >= parts.length
    row = Index("row", ((0, factor.batch), (1, parts.padded)))
    along, across = ("[:, None]", "[None, :]") if factor.runs_along else ("[None, :]", "[:, None]")
    axis = 1 if factor.runs_along else 0
    wide = ".to(tl.int64)" if parts.size >= NARROW or _reach(factor) >= NARROW else ""
    source = f"x + {_sum(row.address(factor.steps[:2]), _times('k', factor.steps[2]))}"
    target = _sum(row.address(parts.steps[:2]), _times("k", parts.steps[2]))
    masks = [] if factor.count == parts.padded else [f"({row.name} % {parts.padded} < {factor.count})"]
    masks += [f"(k < {factor.length})"] if factor.length % held else []
    inside = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    ends = f", mask=k < {parts.length}" if parts.length % held else ""
    k = f"tl.arange(0, {held}){across}"
    read = [f"value = tl.load({source}{inside})", "size = tl.abs(value)", 'finite = size < float("inf")']
    shape = f"[{parts.at_once}, 1]" if factor.runs_along else f"[1, {parts.at_once}]"
    measure = [
        f"largest = tl.maximum(largest, tl.max(tl.where(finite, size, 0.0), axis={axis}, keep_dims=True))",
        f"odd = tl.maximum(odd, tl.max(tl.where(finite, 0.0, 1.0), axis={axis}, keep_dims=True))",
    ]
    write = [
        "scaled = value * scale",
        "high = scaled.to(tl.float16)",
        "low = tl.where(finite, scaled - high.to(tl.float32), 0.0).to(tl.float16)",
        f"tl.store(parts + {target}, high{ends})",
        f"tl.store(parts + {parts.size} + {target}, low{ends})",
    ]
    lines = [
        f"row = (tl.program_id(0){wide} * {parts.at_once} + tl.arange(0, {parts.at_once})){along}",
        f"largest = tl.zeros({shape}, tl.float32)",
        f"odd = tl.zeros({shape}, tl.float32)",
        *([f"k = {k}", *read, *measure] if whole else _loop(factor.length, held, k, [*read, *measure])),
        "# A power of two that makes the exponent of the largest element 13; not so large that its inverse vanishes.",
        "exponent = tl.minimum(267 - (largest.to(tl.int32, bitcast=True) >> 23), 253)",
        "scale = (exponent << 23).to(tl.float32, bitcast=True)",
        "inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)",
        'tl.store(inverses + row, tl.where(odd > 0.0, float("nan"), inverse))',
        *(write if whole else _loop(parts.length, held, k, [*read, *write])),
    ]
    head = f"# {factor.batch * factor.count} rows of {factor.length}, scaled and split into halves\n@triton.jit\n"
    return f"{head}def {name}(x, parts, inverses):\n" + _indented(lines)


def _loop(end: int, step: int, k: str, lines: list[str]) -> list[str]:
    return [f"for start in range(0, {end}, {step}):", *("    " + line for line in (f"k = start + {k}", *lines))]


def _reach(factor: Factor) -> int:
    sizes = (factor.batch, factor.count, factor.length)
    return sum(step * (size - 1) for step, size in zip(factor.steps, sizes, strict=True)) + 1


# --- multiplying ----------------------------------------------------------------------------------------------------


def _multiply(name: str, found: Product, both: tuple[Parts, Parts], after: Tail) -> str:
    left, right = both
    down, across = left.padded // left.tile, right.padded // right.tile
    wide = ".to(tl.int64)" if max(left.size, right.size, found.size) >= NARROW - 2**20 else ""
    ways = [
        _sum(_times("batch", parts.steps[0]), _times(index, parts.steps[1]), _times("k", parts.steps[2]))
        for parts, index in ((left, "row[:, None]"), (right, "column[None, :]"))
    ]
    ways = [ways[0].replace("k", "k[None, :]"), ways[1].replace("k", "k[:, None]")]
    pairs = [("left", left), ("right", right)]
    loop = [f"for _ in range({left.length // STEP}):"]
    loop += [f"    {side}_high = tl.load({side} + {side}_at)" for side, _ in pairs]
    ahead = [f"    {side}_at += {STEP * parts.steps[2]}" for side, parts in pairs]
    begin = [f"{side}_at = {way}" for (side, _), way in zip(pairs, ways, strict=True)]
    lines = [
        *_order(down, across, left.tile, right.tile, wide),
        *begin,
        f"total = tl.zeros([{left.tile}, {right.tile}], tl.float32)",
        *loop,
        *(f"    {side}_low = tl.load({side} + {parts.size} + {side}_at)" for side, parts in pairs),
        "    # what matrix units add up stays short: they do not round",
        "    part = tl.dot(left_low, right_high)",
        "    part = tl.dot(left_high, right_low, part)",
        "    part = tl.dot(left_high, right_high, part)",
        "    total += part",
        *ahead,
        f"row_scale = tl.load(left_scale + batch * {left.padded} + row)[:, None]",
        f"column_scale = tl.load(right_scale + batch * {right.padded} + column)[None, :]",
        "product = total * tl.minimum(row_scale * column_scale, 3e38)",
        "# Where a row or a column is not finite, its high parts have the same infinities.",
        "odd = (row_scale != row_scale) | (column_scale != column_scale)",
        "if tl.max(tl.max(odd.to(tl.int32), axis=1), axis=0) > 0:",
        *("    " + line for line in begin),
        f"    total = tl.zeros([{left.tile}, {right.tile}], tl.float32)",
        *("    " + line for line in loop),
        "        total = tl.dot(left_high, right_high, total)",
        *("    " + line for line in ahead),
        "    product = tl.where(odd, total, product)",
    ]
    given = ["left", "left_scale", "right", "right_scale"]
    if found.bias is not None:
        given.append("bias")
        limit = f", mask=column < {right.factor.count}, other=0.0" if right.factor.count != right.padded else ""
        lines.append(f"product += tl.load(bias + column{limit})[None, :]")
    masks = {}
    if left.factor.count != left.padded:
        masks["line"] = f"(row < {left.factor.count})[:, None]"
    if right.factor.count != right.padded:
        masks["place"] = f"(column < {right.factor.count})[None, :]"
    lines += [f"line = (batch * {left.factor.count} + row)[:, None]", "place = column[None, :]"]
    lines += after.matrix("product", right.factor.count, masks)
    sizes = f"{left.factor.count} x {left.factor.length} by {right.factor.count}"
    head = f"# {after.node.origin or 'product'} of {found.left.batch} times {sizes}{after.said}\n@triton.jit\n"
    return f"{head}def {name}({', '.join([*given, *after.parameters])}):\n" + _indented(lines)


def _order(down: int, across: int, height: int, width: int, wide: str) -> list[str]:
    """Which tile a program has: those that run at the same time share rows and columns."""
    group = GROUP * across
    return [
        "tile = tl.program_id(0)",
        f"batch = tl.program_id(1){wide}",
        f"first = tile // {group} * {GROUP}",
        f"height = tl.minimum({down} - first, {GROUP})",
        f"row = ((first + tile % {group} % height) * {height} + tl.arange(0, {height})){wide}",
        f"column = (tile % {group} // height * {width} + tl.arange(0, {width})){wide}",
        f"k = tl.arange(0, {STEP})",
    ]


def _times(index: str, step: int) -> str:
    return "" if not step else index if step == 1 else f"{index} * {step}"


def _sum(*terms: str) -> str:
    return " + ".join(term for term in terms if term) or "0"


def _indented(lines: list[str]) -> str:
    return "\n".join("    " + line for line in lines) + "\n"

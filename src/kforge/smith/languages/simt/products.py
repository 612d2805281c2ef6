"""Writes matrix products in tiles: a thread group computes one tile of the result, and each thread keeps a part of the
tile in registers.

In each step, a slice of both factors is loaded into shared memory, so that each element is read once per tile. An
`Operand` says how an element of a factor is read, so that convolutions can be written as products, too
(`convolutions.py`).

A long sum is computed in pieces: each piece is added up alone, and then added to the total. This keeps the rounding
error small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kforge.smith.languages.indices import block_of, summed, times
from kforge.smith.languages.simt.code import Code, Value, all_of
from kforge.smith.languages.simt.dialect import GROUP_INDEX, THREAD_INDEX, Kernel
from kforge.smith.languages.simt.tails import tail_of
from kforge.smith.languages.simt.teams import FILLED
from kforge.smith.languages.simt.windows import MOST
from kforge.smith.patterns.products import product_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.simt.dialect import Dialect
    from kforge.smith.languages.simt.plan import SimtPlan
    from kforge.smith.languages.simt.tails import Tail
    from kforge.smith.patterns.products import Factor, Product

SIDE = 16
"""Number of threads of a group along each side of a tile."""
GROUP = SIDE * SIDE
STEP = 16
"""Number of elements of the inner axis that are in shared memory at a time. Large tiles use half as many."""
PADDING = 4
"""Unused words after each line in shared memory. They avoid bank conflicts between threads that write a column."""
PIECE = 256
"""Number of elements of the inner axis in a piece of a long sum. Fewer would cost more additions."""
LONG = 4 * PIECE
"""Most elements of the inner axis that are added up without pieces, because pieces need twice as many registers for the
sums. With this many elements, the rounding error is still a third of the tolerance for float32."""
LARGE = 1 << 27
"""Number of multiplications above which a product is left to torch, on devices whose library is fast."""


class Operand(Protocol):
    """How one factor of a product is read. An element is given by its line (a row of the left factor, a column of the
    right factor) and by `k`, its index along the inner axis."""

    @property
    def by_step(self) -> bool:
        """Whether elements with neighbouring `k` are contiguous in memory. Otherwise elements of neighbouring lines
        are."""
        ...

    def prepare(self, code: Code, line: str) -> None:
        """Write the statements that `element` needs first, for example the image and the channel of an element."""
        ...

    def element(self, code: Code, line: str) -> Value:
        """Write the statements that read the element at this line and `k`, and return its value. Both are within
        bounds."""
        ...


@dataclass(frozen=True)
class Sizes:
    """Sizes of a batch of matrix products: rows and columns of the result, and the length of the sums (`inner`)."""

    batches: int
    rows: int
    inner: int
    columns: int

    @property
    def work(self) -> int:
        return self.batches * self.rows * self.inner * self.columns


@dataclass(frozen=True)
class Strided:
    """A factor that is a matrix in memory, read by its strides."""

    memory: str
    factor: Factor

    @property
    def by_step(self) -> bool:
        return abs(self.step) == 1

    @property
    def step(self) -> int:
        return self.factor.across if self.memory == "left" else self.factor.down

    def prepare(self, code: Code, line: str) -> None:
        pass

    def element(self, code: Code, line: str) -> Value:
        f = self.factor
        apart = f.down if self.memory == "left" else f.across
        terms = [times("batch", f.batch), times(line, apart), times("k", self.step)]
        return code.load(self.memory, summed(*terms, str(f.offset) if f.offset else ""))


def kernel(
    name: str, node: Node, tail: Region | None, context: Context, plan: SimtPlan, dialect: Dialect
) -> tuple[Kernel, dict[str, str]] | None:
    """Return the kernel of a matrix product with the elementwise operations that follow it (`tail`), and the argument
    for each parameter. None if the call is not a product or is left to torch."""
    form, after = product_of(node, context.graph), tail_of(node, tail, context)
    if form is None or after is None or not node.size or not form.inner:
        return None
    sizes = Sizes(form.batches, form.rows, form.inner, form.columns)
    if _reaches_far(form, context) or is_left_to_torch(sizes, plan, dialect):
        return None
    said = f"product of {form.batches} times {form.rows} x {form.inner} x {form.columns}{after.said}"
    tile = Tiled(name, said, sizes, plan, dialect)
    for each in ("left", "right", *(["bias"] if form.bias else [])):
        tile.code.parameter(each, "float32")
    left, right = Strided("left", form.left), Strided("right", form.right)
    bias = (lambda: tile.code.load("bias", "column").text) if form.bias else None
    tile.write(left, right, after, f"(batch * {form.rows} + row) * {form.columns} + column", bias)
    given = {side: _given(factor, context) for side, factor in (("left", form.left), ("right", form.right))}
    if form.bias:
        given["bias"] = context.elements(form.bias)
    return tile.kernel, given | after.given


def is_left_to_torch(sizes: Sizes, plan: SimtPlan, dialect: Dialect) -> bool:
    """Return whether this product is left to torch."""
    if not dialect.library_products or plan.products == 2:
        return False
    return not plan.products or sizes.work > LARGE


def _given(factor: Factor, context: Context) -> str:
    return context.elements(factor.name) if factor.copied else context.memory(factor.base)


def _reaches_far(form: Product, context: Context) -> bool:
    """Return whether the product has too many elements for 32-bit indices."""
    sizes = [context.graph[factor.base].size for factor in (form.left, form.right)]
    return max(*sizes, form.batches * form.rows * form.columns) > MOST


class Tiled:
    """Writes the kernel that computes a batch of matrix products in tiles."""

    def __init__(self, name: str, said: str, sizes: Sizes, plan: SimtPlan, dialect: Dialect) -> None:
        self.sizes, self.dialect = sizes, dialect
        self.down, self.across = _tile(sizes, plan)
        self.tiles = -(-sizes.rows // self.down), -(-sizes.columns // self.across)
        self.step = STEP if self.down + self.across <= 128 else STEP // 2
        self.kernel = Kernel(name, said, GROUP, sizes.batches * self.tiles[0] * self.tiles[1])
        self.code = Code(dialect, self.kernel)

    def write(self, left: Operand, right: Operand, after: Tail, place: str, bias: object = None) -> None:
        """Write the kernel.

        `place` is the expression for the index of a result, in terms of `batch`, `row` and `column`. `bias`, if it is
        callable, returns the expression to add to the result.
        """
        code, (rows, columns) = self.code, (self.down // SIDE, self.across // SIDE)
        after.declare(code)
        count = self.tiles[0] * self.tiles[1]
        code.let("batch", "int32", f"{GROUP_INDEX} / {count}" if self.sizes.batches > 1 else "0")
        code.let("first_row", "int32", f"{GROUP_INDEX} % {count} / {self.tiles[1]} * {self.down}")
        code.let("first_column", "int32", f"{GROUP_INDEX} % {self.tiles[1]} * {self.across}")
        code.let("thread_row", "int32", f"{THREAD_INDEX} / {SIDE}")
        code.let("thread_column", "int32", f"{THREAD_INDEX} % {SIDE}")
        self._zeros("sums", rows * columns)
        inner = self.sizes.inner
        if inner <= LONG:
            self._add_up("sums", "0", str(inner), left, right)
        else:
            with code.loop("piece", inner, "0", PIECE):
                self._zeros("part", rows * columns)
                end = f"piece + {PIECE}"
                if inner % PIECE:
                    end = code.let("end", "int32", self.dialect.select(f"{end} < {inner}", end, str(inner)))
                self._add_up("part", "piece", end, left, right)
                with code.loop("n", rows * columns, unroll=True):
                    code.assign("sums[n]", "sums[n] + part[n]")
        with code.loop("a", rows, unroll=True), code.loop("b", columns, unroll=True):
            code.let("row", "int32", f"first_row + thread_row * {rows} + a")
            code.let("column", "int32", f"first_column + thread_column + b * {SIDE}")
            inside = all_of(
                f"row < {self.sizes.rows}" if self.sizes.rows % self.down else "",
                f"column < {self.sizes.columns}" if self.sizes.columns % self.across else "",
            )
            with code.when(inside):
                code.let("i", "int32", place)
                total = f"sums[a * {columns} + b]"
                if callable(bias):
                    total = f"{total} + {bias()}"
                after.finish(code, Value(code.let("total", "float32", total), "float32"))

    def _zeros(self, name: str, count: int) -> None:
        """Write the declaration of an array of zeros, private to each thread."""
        self.code.array("float32", name, count)
        with self.code.loop("n", count, unroll=True):
            self.code.assign(f"{name}[n]", "0.0f")

    def _add_up(self, sums: str, begin: str, end: str, left: Operand, right: Operand) -> None:
        """Write the loop over the inner axis from `begin` to `end` that adds the products to the array `sums`."""
        code = self.code
        lefts = code.shared("float32", "lefts", self.step * (self.down + PADDING))
        rights = code.shared("float32", "rights", self.step * (self.across + PADDING))
        with code.loop("step", end, begin, self.step):
            self._bring(left, lefts, self.down, "row", self.sizes.rows)
            self._bring(right, rights, self.across, "column", self.sizes.columns)
            code.barrier()
            with code.loop("inner", self.step, unroll=True):
                self._multiply(sums, lefts, rights)
            code.barrier()

    def _multiply(self, sums: str, lefts: str, rights: str) -> None:
        code, (rows, columns) = self.code, (self.down // SIDE, self.across // SIDE)
        code.array("float32", "across", columns)
        with code.loop("b", columns, unroll=True):
            at = f"inner * {self.across + PADDING} + thread_column + b * {SIDE}"
            code.assign("across[b]", f"{rights}[{at}]")
        with code.loop("a", rows, unroll=True):
            code.let("down", "float32", f"{lefts}[inner * {self.down + PADDING} + thread_row * {rows} + a]")
            with code.loop("b", columns, unroll=True):
                place = f"{sums}[a * {columns} + b]"
                code.assign(place, self.dialect.multiply_add("down", "across[b]", place))

    def _bring(self, operand: Operand, memory: str, lines: int, name: str, end: int) -> None:
        """Write the statements that load a slice of one factor into shared memory. Elements beyond the matrix are
        zero."""
        code = self.code
        with code.loop("turn", -(-lines * self.step // GROUP), unroll=True):
            code.let("n", "int32", f"{THREAD_INDEX} + turn * {GROUP}")
            with code.when(f"n < {lines * self.step}" if lines * self.step % GROUP else ""):
                self._bring_one(operand, memory, lines, name, end)

    def _bring_one(self, operand: Operand, memory: str, lines: int, name: str, end: int) -> None:
        code = self.code
        code.let("line", "int32", f"n / {self.step}" if operand.by_step else f"n % {lines}")
        code.let("inner", "int32", f"n % {self.step}" if operand.by_step else f"n / {lines}")
        code.let(name, "int32", f"first_{name} + line")
        code.let("k", "int32", "step + inner")
        code.var("element", "float32", "0.0f")
        inside = all_of(
            f"{name} < {end}" if end % lines else "",
            f"k < {self.sizes.inner}" if self.sizes.inner % self.step else "",
        )
        with code.when(inside):
            operand.prepare(code, name)
            value = operand.element(code, name)
            code.assign("element", value.text)
        code.assign(f"{memory}[inner * {lines + PADDING} + line]", "element")


def _tile(sizes: Sizes, plan: SimtPlan) -> tuple[int, int]:
    """Return the number of rows and columns of a tile. It is the plan's `tile`, made smaller if the matrix is
    smaller, or if there would be too few tiles to fill the device."""
    down, across = (max(SIDE, min(plan.tile, block_of(size))) for size in (sizes.rows, sizes.columns))
    while (
        max(down, across) > 2 * SIDE and sizes.batches * -(-sizes.rows // down) * -(-sizes.columns // across) < FILLED
    ):
        if down >= across:
            down //= 2
        else:
            across //= 2
    return down, across

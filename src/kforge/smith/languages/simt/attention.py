"""Writes attention kernels that never store the matrix of scores: each thread has one query, and blocks of keys and
values pass through shared memory.

The softmax is computed online: when a larger score appears, the sums so far are scaled down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.ir.graph import placed
from kforge.smith.languages.indices import summed, times
from kforge.smith.languages.simt.code import Code, Value
from kforge.smith.languages.simt.dialect import GROUP_INDEX, THREAD_INDEX, Kernel
from kforge.smith.languages.simt.functions import expression
from kforge.smith.languages.simt.tails import tail_of
from kforge.smith.languages.simt.windows import MOST
from kforge.smith.patterns.attentions import attention_of

if TYPE_CHECKING:
    from kforge.smith.fusion.regions import Region
    from kforge.smith.ir.graph import Node
    from kforge.smith.languages import Context
    from kforge.smith.languages.simt.dialect import Dialect
    from kforge.smith.languages.simt.plan import SimtPlan
    from kforge.smith.patterns.attentions import Attention

QUERIES = 64
"""Number of queries, and so of threads, of a thread group."""
KEYS = 32
"""Most keys that are in shared memory at a time."""
WIDEST = 256
"""Most channels of a query. A thread keeps them in its own memory."""
LONG = 256
"""Most keys whose weighted values are added up one after another."""
LOWEST = -3e38
"""Initial value of the largest score so far. It is finite, so that a score of minus infinity adds zero and not NaN."""


def kernel(
    name: str, node: Node, tail: Region | None, context: Context, plan: SimtPlan, dialect: Dialect
) -> tuple[Kernel, dict[str, str]] | None:
    """Return the kernel of an attention call with the elementwise operations that follow it (`tail`), and the argument
    for each parameter. None if the call is not attention or is left to torch."""
    form, after = attention_of(node, context.graph), tail_of(node, tail, context)
    if form is None or after is None or form.width > WIDEST or not form.keys:
        return None
    if dialect.library_products and plan.products < 2:
        return None
    names = {"query": form.query, "key": form.key, "value": form.value, **({"bias": form.bias} if form.bias else {})}
    places = {key: placed(context.graph)[each] for key, each in names.items()}
    if max(node.size, *(context.graph[place.base].size for place in places.values())) > MOST:
        return None
    blocks = -(-form.queries // QUERIES)
    said = f"attention of {form.batch} x {form.heads} x {form.queries} x {form.keys} x {form.width}{after.said}"
    made = Kernel(name, said, QUERIES, form.batch * form.heads * blocks)
    code = Code(dialect, made)
    for each in names:
        code.parameter(each, "float32")
    after.declare(code)
    strides = {
        key: (tuple(0 if size == 1 else step for size, step in zip(context.graph[each].shape, places[key].strides,
                                                                   strict=True)), places[key].offset)
        for key, each in names.items()
    }  # fmt: skip
    _Body(code, form, strides, blocks).write()
    with code.when(f"query_place < {form.queries}" if form.queries % QUERIES else ""), code.loop("c", form.width):
        head = f"(batch * {form.heads} + head) * {form.queries} + query_place"
        code.let("i", "int32", f"({head}) * {form.width} + c")
        result = code.let("result", "float32", "sums[c] / total")
        after.finish(code, Value(result, "float32"))
    return made, {key: context.memory(place.base) for key, place in places.items()} | after.given


class _Body:
    """Writes the kernel's statements up to the weighted sums of a query."""

    def __init__(
        self, code: Code, form: Attention, strides: dict[str, tuple[tuple[int, ...], int]], blocks: int
    ) -> None:
        self.code, self.form, self.strides, self.blocks = code, form, strides, blocks
        self.keys = max(1, min(KEYS, code.dialect.shared_bytes // (2 * 4 * form.width)))
        self.by_block = form.keys > LONG
        """Whether the sums over each block of keys are computed alone, and then added to those of the earlier blocks.
        This keeps the rounding error small, but doubles the memory for sums."""
        self.sums, self.total = ("block_sums", "block_total") if self.by_block else ("sums", "total")

    def write(self) -> None:
        code, form, width = self.code, self.form, self.form.width
        code.let("head", "int32", f"{GROUP_INDEX} / {self.blocks} % {form.heads}")
        code.let("batch", "int32", f"{GROUP_INDEX} / {self.blocks * form.heads}")
        code.let("query_place", "int32", f"{GROUP_INDEX} % {self.blocks} * {QUERIES} + {THREAD_INDEX}")
        # threads beyond the last query do its work again, so that all reach every barrier
        nearest = code.dialect.select(f"query_place < {form.queries}", "query_place", str(form.queries - 1))
        code.let("asked", "int32", nearest)
        keys = code.shared("float32", "keys", self.keys * width)
        values = code.shared("float32", "values", self.keys * width)
        code.array("float32", "own", width)
        code.array("float32", "sums", width)
        with code.loop("c", width, unroll=True):
            scale = code.dialect.number(form.scale)
            code.assign("own[c]", f"{code.load('query', self._at('query', 'asked', 'c')).text} * {scale}")
            code.assign("sums[c]", "0.0f")
        code.var("largest", "float32", code.dialect.number(LOWEST))
        code.var("total", "float32", "0.0f")
        if self.by_block:
            code.array("float32", self.sums, width)
        with code.loop("first", form.keys, "0", self.keys):
            if self.by_block:
                code.let("largest_before", "float32", "largest")
                code.var(self.total, "float32", "0.0f")
                with code.loop("c", width, unroll=True):
                    code.assign(f"{self.sums}[c]", "0.0f")
            with code.loop("n", self.keys * width, THREAD_INDEX, QUERIES):
                code.let("place", "int32", f"first + n / {width}")
                code.let("c", "int32", f"n % {width}")
                code.var("key_element", "float32", "0.0f")
                code.var("value_element", "float32", "0.0f")
                with code.when(f"place < {form.keys}" if form.keys % self.keys else ""):
                    code.assign("key_element", code.load("key", self._at("key", "place", "c")).text)
                    code.assign("value_element", code.load("value", self._at("value", "place", "c")).text)
                code.assign(f"{keys}[n]", "key_element")
                code.assign(f"{values}[n]", "value_element")
            code.barrier()
            with code.loop("k", self.keys):
                code.let("place", "int32", "first + k")
                self._one_key(keys, values)
            if self.by_block:
                code.let("kept", "float32", expression(code, "exp", ["(largest_before - largest)"]))
                code.assign("total", code.dialect.multiply_add("total", "kept", self.total))
                with code.loop("c", width, unroll=True):
                    code.assign("sums[c]", code.dialect.multiply_add("sums[c]", "kept", f"{self.sums}[c]"))
            code.barrier()

    def _one_key(self, keys: str, values: str) -> None:
        code, form, width = self.code, self.form, self.form.width
        bounds = [f"place < {form.keys}"] if form.keys % self.keys else []
        bounds += ["place <= asked"] if form.causal else []
        with code.when(" && ".join(bounds)):
            self._score(keys)
            if form.bias:
                code.assign("score", f"score + {code.load('bias', self._bias_at()).text}")
            code.let("larger", "float32", f"{code.dialect.calls['max']}(largest, score)")
            code.let("fewer", "float32", expression(code, "exp", ["(largest - larger)"]))
            code.let("weight", "float32", expression(code, "exp", ["(score - larger)"]))
            code.assign("largest", "larger")
            code.assign(self.total, f"{self.total} * fewer + weight")
            with code.loop("c", width, unroll=True):
                element = f"weight * {values}[k * {width} + c]"
                code.assign(f"{self.sums}[c]", code.dialect.multiply_add(f"{self.sums}[c]", "fewer", element))

    def _score(self, keys: str) -> None:
        """Write the product of the query and a key, in four partial sums if the width allows it. Shorter sums lose
        fewer digits of large scores, and the softmax would enlarge that loss."""
        code, width = self.code, self.form.width
        parts = 4 if width % 4 == 0 else 1
        sums = [f"score_{part}" for part in range(parts)] if parts > 1 else ["score"]
        for name in sums:
            code.var(name, "float32", "0.0f")
        with code.loop("c", width // parts, unroll=True):
            for part, name in enumerate(sums):
                c = f"c * {parts} + {part}" if parts > 1 else "c"
                code.assign(name, code.dialect.multiply_add(f"own[{c}]", f"{keys}[k * {width} + {c}]", name))
        if parts > 1:
            code.var("score", "float32", f"({' + '.join(sums[:2])}) + ({' + '.join(sums[2:])})")

    def _at(self, name: str, place: str, channel: str) -> str:
        return self._address(name, ("batch", "head", place, channel))

    def _bias_at(self) -> str:
        return self._address("bias", ("batch", "head", "asked", "place"))

    def _address(self, name: str, indices: tuple[str, ...]) -> str:
        steps, offset = self.strides[name]
        terms = (times(index, step) for index, step in zip(indices, steps, strict=True))
        return summed(*terms, str(offset) if offset else "")

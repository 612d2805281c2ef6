"""Rewrites a graph by named rules that keep its meaning, to save work before kernels are written.

Rules are tried in order, cheap and certain ones first, until none applies. A property test compares each rule with
`interpret.evaluate`. Values that depend only on parameters are still computed in every call, since weights may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.rewrite.einsums import EINSUMS
from kforge.smith.rewrite.nested import NESTED
from kforge.smith.rewrite.operators.attention import ATTENTION
from kforge.smith.rewrite.operators.pooling import PLACES, POOLING
from kforge.smith.rewrite.operators.products import PRODUCTS
from kforge.smith.rewrite.operators.scans import SCANS
from kforge.smith.rewrite.operators.softmax import SOFTMAX
from kforge.smith.rewrite.operators.sums import SUMS
from kforge.smith.rewrite.plain import PLAIN
from kforge.smith.rewrite.repeats import REPEATS
from kforge.smith.rewrite.rule import Rule
from kforge.smith.rewrite.scalars import SCALARS
from kforge.smith.rewrite.shapes import SHAPES
from kforge.smith.rewrite.triangles import TRIANGLES
from kforge.smith.rewrite.weights import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.smith.ir.graph import Graph

__all__ = ["ALGEBRAIC", "RULES", "Rule", "simplify"]

RULES: tuple[Rule, ...] = (
    *PLAIN, *SHAPES, *SCALARS, *SCANS, *SOFTMAX, *EINSUMS, *ATTENTION, *PRODUCTS, *TRIANGLES,
    *REPEATS, *POOLING, *SUMS, *PLACES,  # pooling becomes a mean first; then sums move, the cheapest way first
    *WEIGHTS, *NESTED,
)  # fmt: skip

ALGEBRAIC = frozenset(rule.name for rule in RULES if rule.algebraic)
"""Names of the rules that save work by algebra: no kernel for the module's own operators could save it."""

MOST_ROUNDS = 40
"""Most rounds in which all rules are tried. Rules only remove work, so fewer rounds suffice; the limit stops a faulty
rule."""


def simplify(graph: Graph, further: Sequence[Rule] = ()) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph with every rule applied as often as possible, and the names of the rules that were applied, in
    order.

    `further` are a language's own rules. They come after the general rules, which are then tried once more.
    """
    graph, applied = _exhausted(graph, RULES)
    if further:
        graph, more = _exhausted(graph, further)
        applied += more
        if more:
            graph, more = _exhausted(graph, RULES)
            applied += more
    return graph, tuple(dict.fromkeys(applied))


def _exhausted(graph: Graph, rules: Sequence[Rule]) -> tuple[Graph, list[str]]:
    applied: list[str] = []
    for _ in range(MOST_ROUNDS):
        before = graph
        for rule in rules:
            rewritten = rule.apply(graph)
            if rewritten is not None:
                graph = rewritten
                applied.append(rule.name)
        if graph is before:
            break
    return graph, applied

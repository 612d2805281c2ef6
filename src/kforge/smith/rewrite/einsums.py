"""Rewrites calls of einsum that are matrix products as matmul, so that other rules and kernels recognise them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.ir.graph import Ref
from kforge.smith.rewrite.rule import node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Operand
    from kforge.smith.rewrite.rule import Site


@node_rule(
    "einsum",
    when="an einsum of two tensors that sums over one index and is a matrix product after permuting axes",
    saves="nothing by itself: other rules and kernels then recognise the product",
)
def einsum(site: Site) -> Operand | None:
    if site.node.function != "aten.einsum.default" or site.node.kind != "call":
        return None
    positional, named = site.node.arguments
    if named or len(positional) != 2 or len(positional[1]) != 2:
        return None
    equation, operands = positional[0].replace(" ", ""), [each.name for each in positional[1]]
    given, _, out = equation.partition("->")
    left, _, right = given.partition(",")
    labels = left, right, out
    if not out or not given.count(",") or not all(x.isalpha() and len(set(x)) == len(x) for x in labels):
        return None  # not supported: a short form, an ellipsis or a diagonal
    batch = [x for x in out if x in left and x in right]
    summed = [x for x in left if x in right and x not in out]
    down, across = [x for x in out if x not in right], [x for x in out if x not in left]
    whole = {*batch, *summed, *down} == set(left) and {*batch, *summed, *across} == set(right)
    if not whole or len(summed) != 1 or len(across) != 1 or not down or (batch and len(down) != 1):
        return None
    b = site.builder
    one = b.permute(operands[0], [left.index(x) for x in (*batch, *down, *summed)])
    other = b.permute(operands[1], [right.index(x) for x in (*batch, *summed, *across)])
    shape = (*b.shape(one)[:-1], b.shape(other)[-1])
    product = b.call("matmul", "aten.matmul.default", ([Ref(one), Ref(other)], {}), shape, site.node.dtype)
    return b.permute(product, [(*batch, *down, *across).index(x) for x in out])


EINSUMS = (einsum,)

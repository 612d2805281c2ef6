"""Merges nested sums, with factors between them, into one sum if that is one pass over memory.

Means are included, since a mean is a sum and a division. As two kernels, the first sum would pass its results to the
second through memory. One sum over all axes has the factors inside, or after it if they are constant along the summed
axes. One sum is not always better: the first sum may share its pass with other reductions of the same axes, such as a
softmax, and there may be too few results for all cores. So the rule compares how much memory the kernels of both graphs
would read and write.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kforge.smith.fusion.regions import traffic
from kforge.smith.ir.graph import placed
from kforge.smith.rewrite.operators.sums import leads_to_linear, sum_of
from kforge.smith.rewrite.rule import Site, aligned, constant_along, node_rule, rewritten
from kforge.smith.rewrite.shapes import reads_across

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Builder, Node, Operand

MANY = 64
"""Fewest results that keep the cores of a host busy if each core computes one result at a time. A single result is an
exception: all cores share it."""
LANES = 32
"""Fewest neighbouring elements for which a loop of its own is efficient. Factors that vary along one axis keep that
axis a separate loop."""
NEAR = 1 << 16
"""Most elements of a factor for which it stays in a core's own cache while it is read repeatedly."""


class _Factor(NamedTuple):
    """A map that multiplies, divides or negates a value between two sums."""

    function: str
    inputs: tuple[Operand | None, ...]
    """The operands of the map. None stands for the value that is multiplied."""

    def given(self, b: Builder, value: str) -> str:
        return b.map(self.function, *(value if each is None else each for each in self.inputs))

    def changes_along(self, b: Builder, axes: tuple[int, ...], within: tuple[int, ...]) -> bool:
        return not all(constant_along(axes, b.shape(each), within) for each in self.inputs if each is not None)


def _weighted_sum(site: Site, node: Node) -> tuple[Node, list[_Factor]] | None:
    """Return the inner sum and the factors applied to it, innermost first. None if the node is no such expression, or
    if another node reads a part of it."""
    if node.dtype != "float32" or not site.alone(node.name):
        return None
    if node.kind == "reduce":
        return (node, []) if node.function == "sum" else None
    if node.kind != "map" or node.function not in ("mul", "div", "neg"):
        return None
    for place, operand in enumerate(node.inputs[:1] if node.function == "div" else node.inputs):
        # the factor has the whole shape, so the other operand does not change along the axes that are summed first
        source = site.graph[operand] if isinstance(operand, str) else None
        found = _weighted_sum(site, source) if source is not None and source.shape == node.shape else None
        if found is not None:
            inputs = tuple(None if i == place else each for i, each in enumerate(node.inputs))
            return found[0], [*found[1], _Factor(node.function, inputs)]
    return None


@node_rule(
    "sum of weighted sums",
    when="s * c, s / c or -s is summed, where s is a sum over other axes that nothing else reads and c is already "
    "computed; all these axes are contiguous in memory, and the kernels then read and write less",
    saves="a kernel, and the memory traffic between the two kernels",
)
def sum_of_weighted_sums(site: Site) -> Operand | None:
    node, source = site.node, sum_of(site)
    found = _weighted_sum(site, source) if source is not None and source.kind == "map" else None
    if found is None:
        return None
    (first, factors), b = found, site.builder
    x, axes = site.graph[first.sources[0]], tuple(sorted({*first.axes, *node.axes}))
    inside = [each for each in factors if each.changes_along(b, node.axes, first.shape)]
    if not _is_one_pass(site, x, axes) or not all(_is_near(site, each, axes) for each in inside):
        return None
    if inside and x.shape[axes[-1]] < LANES:
        return None
    value = x.name
    for factor in inside:
        value = factor.given(b, value)
    value = b.reduce("sum", value, axes)
    for factor in factors:
        value = value if factor in inside else factor.given(b, value)
    after = rewritten(site, value)
    return value if after is not None and traffic(after) < traffic(site.graph) else None


def _is_one_pass(site: Site, x: Node, axes: tuple[int, ...]) -> bool:
    """Return whether the elements of each result are contiguous, and there is enough work for all cores. Also False if
    the sum could move into a linear call, which other rules do."""
    behind = [axis for axis in range(axes[0], len(x.shape)) if x.shape[axis] != 1]
    enough = site.node.size == 1 or site.node.size >= MANY or _is_made_in_rows(site, x.name, axes)
    return behind == list(axes) and enough and not reads_across(site, x.name) and not leads_to_linear(site, x.name)


def _is_made_in_rows(site: Site, name: str, axes: tuple[int, ...]) -> bool:
    """Return whether the value depends on a reduction over the same axes. Cores then already share its results."""
    node = site.graph[name]
    if node.kind == "reduce":
        return node.axes == axes
    return node.kind == "map" and any(_is_made_in_rows(site, source, axes) for source in node.sources)


def _is_near(site: Site, factor: _Factor, axes: tuple[int, ...]) -> bool:
    """Return whether a factor is cheap to read: it is small, and it is an input or is computed once for several
    results."""
    within = site.node.shape
    for name in (each for each in factor.inputs if isinstance(each, str)):
        shape = site.graph[name].shape
        own = {axis - len(within) + len(shape): size for axis, size in enumerate(within) if axis not in axes}
        shared = any(size != 1 and (axis < 0 or shape[axis] == 1) for axis, size in own.items())
        made = site.graph[placed(site.graph)[name].base].kind in ("map", "reduce", "scan")
        if (made and not shared) or math.prod(shape[axis] for axis in aligned(axes, shape, within)) > NEAR:
            return False
    return True


NESTED = (sum_of_weighted_sums,)

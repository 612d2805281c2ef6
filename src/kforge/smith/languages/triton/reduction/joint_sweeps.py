"""Merges two sweeps into one pass, where the second needs the result of the first.

    grown    sum(exp(v - max(v))): the sum so far is scaled down whenever a larger element is met; so are other sums of
             the same exponentials, each times a factor. Factors have signs, so the sum may nearly cancel: each lane
             uses Kahan summation, and lanes are added up in double precision
    apart    sum((v - mean(v))^2): each lane keeps its own mean and squared differences (Welford's method)

Lanes, and then parts of a place, are combined at the end, by their differences from the overall maximum or mean.
Neither is less exact than two sweeps would be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kforge.smith.fusion.loops import Sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kforge.smith.fusion.loops import Nest
    from kforge.smith.ir.graph import Node

LOWEST = "-3.4028234663852886e38"
"""Initial value of a running maximum: minus infinity could not be subtracted."""


@dataclass(frozen=True)
class Joint:
    """Reductions that are computed in the same pass as the reduction that they need."""

    kind: str
    first: Node
    """The reduction that is needed: the maximum, or the sum that the mean is computed from."""
    nodes: tuple[Node, ...]
    """The dependent reductions; several only where exponentials are summed."""
    factors: tuple[str, ...]
    """For each node, the buffer whose elements multiply its elements; empty where there is none."""

    @property
    def weighted(self) -> list[Node]:
        """The sums that have factors."""
        return [node for node, factor in zip(self.nodes, self.factors, strict=True) if factor]

    def lanes(self, value: str, factors: Sequence[str], mask: str, stride: int) -> list[str]:
        """Return the lines for one more block of elements, `stride` after the one before; they replace the first
        reduction's lines, too.

        `factors`: values of this block.
        """
        first, node = self.first.name, self.nodes[0].name
        top, total = f"{first}_lanes", f"{node}_lanes"
        if self.kind == "grown":
            outside = f"tl.where({mask}, {value}, {LOWEST})" if mask else value
            shrunk, grown = f"tl.exp({top} - {first}_next)", f"tl.exp({value} - {first}_next)"
            grown = f"tl.where({mask}, {grown}, 0.0)" if mask else grown
            named = []
            if len(self.nodes) > 1:
                named = [f"{first}_shrunk = {shrunk}", f"{first}_grown = {grown}"]
                shrunk, grown = f"{first}_shrunk", f"{first}_grown"
            lines = [f"{first}_next = tl.maximum({top}, {outside})", *named]
            for each, factor in zip((each.name for each in self.nodes), factors, strict=True):
                if not factor:
                    lines.append(f"{each}_lanes = {each}_lanes * {shrunk} + {grown}")
                    continue
                lines += [
                    f"{each}_so_far = {each}_lanes * {shrunk}",
                    f"{each}_more = {grown} * {factor} - {each}_lost * {shrunk}",
                    f"{each}_lanes = {each}_so_far + {each}_more",
                    f"{each}_lost = ({each}_lanes - {each}_so_far) - {each}_more",
                ]
            return [*lines, f"{top} = {first}_next"]
        away = f"{value} - {top}"
        return [
            f"{node}_away = {f'tl.where({mask}, {away}, 0.0)' if mask else away}",
            f"{top} += {node}_away / (start // {stride} + 1)",
            f"{total} += {node}_away * ({f'tl.where({mask}, {away}, 0.0)' if mask else away})",
        ]

    def together(self, parts: str, counts: str, total: str, axis: int) -> list[str]:
        """Return the lines that combine both reductions from their `parts`, of `counts` elements each and `total`
        together.

        The parts of the first reduction are maxima or sums. Each part of the second is relative to its own maximum or
        mean.
        """
        first, node = self.first.name, self.nodes[0].name
        if self.kind == "grown":
            lines = [f"{first} = tl.max({first}_{parts}, axis={axis}, keep_dims=True)"]
            for each, factor in zip((each.name for each in self.nodes), self.factors, strict=True):
                whole = "{}" if not factor else "{}.to(tl.float64)"
                lines.append(f"{each} = {each}_{parts} * tl.exp({first}_{parts} - {first})")
                lines.append(f"{each} = tl.sum({whole.format(each)}, axis={axis}, keep_dims=True)")
                lines += [f"{each} = {each}.to(tl.float32)"] if factor else []
            return lines
        own = f"{first}_{parts} / {f'tl.maximum({counts}, 1.0)' if counts == 'counts' else counts}"
        return [
            f"{first} = tl.sum({first}_{parts}, axis={axis}, keep_dims=True)",
            f"{node}_away = {own} - {first} / {total}",
            f"{node} = {node}_{parts} + {node}_away * {node}_away * {counts}",
            f"{node} = tl.sum({node}, axis={axis}, keep_dims=True)",
        ]


def joined(nest: Nest, count: int) -> tuple[Nest, dict[str, Joint]]:
    """Return the nest with fewer sweeps, and by name the reductions that were merged into an earlier sweep. `count`:
    elements."""
    joints: dict[str, Joint] = {}
    sweeps = list(nest.sweeps)
    number = 0
    while number + 1 < len(sweeps):
        here, then = sweeps[number], sweeps[number + 1]
        found = _joints(nest, here, then, count)
        firsts = {each.first.name for each in found}
        if not found or not firsts.isdisjoint({*nest.outputs, *(j.first.name for j in joints.values())}):
            number += 1
            continue
        joints |= {node.name: each for each in found for node in each.nodes}
        after = sweeps[number + 2] if number + 2 < len(sweeps) else Sweep((), (), ())
        rest = Sweep((*then.elements, *after.elements), after.reductions, after.after)
        needed = rest.reductions or any(node.name in nest.outputs for node in rest.elements)
        merged = Sweep(here.elements, (*here.reductions, *then.reductions), (*here.after, *then.after))
        sweeps[number : number + 3] = [merged, rest] if needed else [merged]
        number += 1
    return replace(nest, sweeps=tuple(sweeps)), joints


def _joints(nest: Nest, here: Sweep, then: Sweep, count: int) -> list[Joint]:
    """Return how the next sweep's reductions follow from this sweep's; empty where one of them has no known form."""
    found: dict[str, Joint] = {}
    for node in then.reductions:
        joint = _joint(node, nest, here, then, count)
        before = found.get(joint.first.name) if joint is not None else None
        if joint is None or (before is not None and {joint.kind, before.kind} != {"grown"}):
            return []
        if before is not None:
            joint = replace(joint, nodes=before.nodes + joint.nodes, factors=before.factors + joint.factors)
        found[joint.first.name] = joint
    return list(found.values())


def _joint(node: Node, nest: Nest, here: Sweep, then: Sweep, count: int) -> Joint | None:
    """Return how this reduction of the next sweep follows from one of this sweep; None where it has no known form."""
    made = {each.name: each for each in (*here.elements, *here.reductions, *here.after, *then.elements)}
    if node.function != "sum":
        return None
    element, factor = _without_factor(made.get(node.sources[0]), nest, made)
    if element is None or element.function not in ("exp", "mul") or len(set(element.inputs)) != 1:
        return None
    apart = made.get(str(element.inputs[0]))
    if apart is None or apart.kind != "map" or apart.function != "sub":
        return None
    value, level = (str(each) for each in apart.inputs)
    middle = made.get(level)
    if element.function == "mul" and middle is not None and middle.function == "div" and middle.inputs[1] == count:
        first, kind, function = made.get(str(middle.inputs[0])), "apart", "sum"
    elif element.function == "exp":
        first, kind, function = middle, "grown", "max"
    else:
        return None
    fits = first is not None and first in here.reductions and first.function == function
    return Joint(kind, first, (node,), (factor,)) if fits and first.sources[0] == value else None  # type: ignore[union-attr,arg-type]


def _without_factor(element: Node | None, nest: Nest, made: Mapping[str, Node]) -> tuple[Node | None, str]:
    """Return the exponential without a factor that is read from memory, and the factor's name."""
    if element is not None and element.function == "mul":
        for value, factor in (element.inputs, element.inputs[::-1]):
            grown = made.get(str(value))
            read = {each.name for each in nest.buffers if each.dtype == "float32" and each.name not in nest.outputs}
            if grown is not None and grown.function == "exp" and factor in read:
                return grown, str(factor)
    return element, ""

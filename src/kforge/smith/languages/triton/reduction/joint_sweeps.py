"""Merges two sweeps into one pass although the second needs the result of the first.

    grown    sum(exp(v - max(v))): the sum so far is scaled down whenever a larger element appears, and so are other
             sums of the same exponentials times a factor. Factors may be negative, so that a sum may nearly cancel:
             each lane uses Kahan summation, and lanes are added up in double precision
    apart    sum((v - mean(v))^2): each lane keeps its own mean and squared differences (Welford's method)

At the end, lanes and then parts of a place are combined, by their differences from the overall maximum or mean. The
results are as exact as those of two sweeps.
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
"""Initial value of a running maximum. Minus infinity would give NaN in a subtraction."""


@dataclass(frozen=True)
class Joint:
    """Reductions that are computed in the same pass as an earlier reduction that they depend on. `kind` is `grown` or
    `apart`."""

    kind: str
    first: Node
    """The earlier reduction: the maximum, or the sum from which the mean is computed."""
    nodes: tuple[Node, ...]
    """The dependent reductions. More than one only if the kind is `grown`."""
    factors: tuple[str, ...]
    """For each dependent reduction, the name of the buffer whose elements multiply the exponentials. An empty name if
    there is no factor."""

    @property
    def weighted(self) -> list[Node]:
        """Those dependent sums whose exponentials are multiplied by a factor from memory."""
        return [node for node, factor in zip(self.nodes, self.factors, strict=True) if factor]

    def lanes(self, value: str, factors: Sequence[str], mask: str, stride: int) -> list[str]:
        """Return the lines that update the running values of all these reductions with one more block of elements.

        `factors` has the block's values of each factor. `stride` is the distance between two blocks of one program
        instance.
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
        """Return the lines that combine partial results into the final ones.

        `parts` is the suffix of the variables with the partial results. Each part has `counts` elements, and all have
        `total`. The partial results of the first reduction are maxima or sums; those of the others are relative to the
        maximum or mean of their own part.
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
    """Return the nest with fewer sweeps, and the reductions that were merged into an earlier sweep, by name. `count` is
    the number of elements of a place."""
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
    """Return how the reductions of the sweep `then` can be merged into the sweep `here`. Empty if one of them
    cannot."""
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
    """Return how one reduction of the sweep `then` can be merged into the earlier sweep `here`.

    None if the reduction is neither a sum of exponentials (`grown`) nor a sum of squared differences from the mean
    (`apart`), or if `here` does not compute the maximum or mean that it needs.
    """
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
    """Return the exponential of a product of an exponential and a factor from memory, and the factor's name. Without
    such a factor, return the element itself and an empty name."""
    if element is not None and element.function == "mul":
        for value, factor in (element.inputs, element.inputs[::-1]):
            grown = made.get(str(value))
            read = {each.name for each in nest.buffers if each.dtype == "float32" and each.name not in nest.outputs}
            if grown is not None and grown.function == "exp" and factor in read:
                return grown, str(factor)
    return element, ""

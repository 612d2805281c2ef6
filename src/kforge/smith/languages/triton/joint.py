"""Two sweeps as one: what a second one would add up once it knows the first one's result, and yet in the same pass.

    grown    sum(exp(v - max(v))): what was added up so far shrinks whenever a larger element is met
    apart    sum((v - mean(v))^2): each lane keeps its own mean, and its squares apart from that (Welford's way)

Lanes, and then parts of a place, are put together at the end: by what they differ from the largest, or from the mean of
all. Neither is less exact than two sweeps would be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kforge.smith.loops import Sweep

if TYPE_CHECKING:
    from kforge.smith.graph import Node
    from kforge.smith.loops import Nest

LOWEST = "-3.4028234663852886e38"
"""What a running maximum begins with: less infinity would leave nothing to subtract from."""


@dataclass(frozen=True)
class Joint:
    """A reduction that goes along with the one that it needs."""

    kind: str
    first: Node
    """The maximum, or the sum that the mean is made of."""
    node: Node

    def lanes(self, value: str, mask: str, stride: int) -> list[str]:
        """One more block of elements, `stride` after the one before; in place of the first reduction's lines, too."""
        top, total = f"{self.first.name}_lanes", f"{self.node.name}_lanes"
        if self.kind == "grown":
            outside = f"tl.where({mask}, {value}, {LOWEST})" if mask else value
            grown = f"tl.exp({value} - {self.first.name}_next)"
            grown = f"tl.where({mask}, {grown}, 0.0)" if mask else grown
            return [
                f"{self.first.name}_next = tl.maximum({top}, {outside})",
                f"{total} = {total} * tl.exp({top} - {self.first.name}_next) + {grown}",
                f"{top} = {self.first.name}_next",
            ]
        away = f"{value} - {top}"
        return [
            f"{self.node.name}_away = {f'tl.where({mask}, {away}, 0.0)' if mask else away}",
            f"{top} += {self.node.name}_away / (start // {stride} + 1)",
            f"{total} += {self.node.name}_away * ({f'tl.where({mask}, {away}, 0.0)' if mask else away})",
        ]

    def together(self, parts: str, counts: str, total: str, axis: int) -> list[str]:
        """Both reductions out of their `parts`, which hold `counts` elements each, and `total` together.

        The first one's parts are maxima or sums; of the second one they are each about its own maximum or mean.
        """
        first, node = self.first.name, self.node.name
        if self.kind == "grown":
            return [
                f"{first} = tl.max({first}_{parts}, axis={axis}, keep_dims=True)",
                f"{node} = {node}_{parts} * tl.exp({first}_{parts} - {first})",
                f"{node} = tl.sum({node}, axis={axis}, keep_dims=True)",
            ]
        own = f"{first}_{parts} / {f'tl.maximum({counts}, 1.0)' if counts == 'counts' else counts}"
        return [
            f"{first} = tl.sum({first}_{parts}, axis={axis}, keep_dims=True)",
            f"{node}_away = {own} - {first} / {total}",
            f"{node} = {node}_{parts} + {node}_away * {node}_away * {counts}",
            f"{node} = tl.sum({node}, axis={axis}, keep_dims=True)",
        ]


def joined(nest: Nest, count: int) -> tuple[Nest, dict[str, Joint]]:
    """The nest in fewer sweeps, and by their names the reductions that go along with another. `count`: of elements."""
    joints: dict[str, Joint] = {}
    sweeps = list(nest.sweeps)
    number = 0
    while number + 1 < len(sweeps):
        here, then = sweeps[number], sweeps[number + 1]
        found = [_joint(node, here, then, count) for node in then.reductions]
        firsts = {each.first.name for each in found if each is not None}
        alone = len(firsts) == len(found) and firsts.isdisjoint(
            {*nest.outputs, *(j.first.name for j in joints.values())}
        )
        if not found or not alone:
            number += 1
            continue
        joints |= {each.node.name: each for each in found if each is not None}
        after = sweeps[number + 2] if number + 2 < len(sweeps) else Sweep((), (), ())
        rest = Sweep((*then.elements, *after.elements), after.reductions, after.after)
        needed = rest.reductions or any(node.name in nest.outputs for node in rest.elements)
        merged = Sweep(here.elements, (*here.reductions, *then.reductions), (*here.after, *then.after))
        sweeps[number : number + 3] = [merged, rest] if needed else [merged]
        number += 1
    return replace(nest, sweeps=tuple(sweeps)), joints


def _joint(node: Node, here: Sweep, then: Sweep, count: int) -> Joint | None:
    """What this reduction of the next sweep is to one of this sweep; None where it is nothing known."""
    made = {each.name: each for each in (*here.elements, *here.reductions, *here.after, *then.elements)}
    if node.function != "sum":
        return None
    element = made.get(node.sources[0])
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
    return Joint(kind, first, node) if fits and first.sources[0] == value else None  # type: ignore[union-attr,arg-type]

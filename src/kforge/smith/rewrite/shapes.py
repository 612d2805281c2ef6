"""Removes reshapes that keep nodes from sharing a kernel: of a flattened tensor that is reshaped back, or that is
reduced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.rewrite.rule import axes_before, groups, node_rule

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Node, Operand, Shape
    from kforge.smith.rewrite.rule import Site


class _Reshaped:
    """Rewrites maps and reductions of the shape `outer` for the shape `inner`, each node once."""

    def __init__(self, site: Site, outer: Shape, inner: Shape) -> None:
        self.site = site
        self.outer, self.inner = outer, inner
        self.groups = list(groups(outer, inner))
        self.made: dict[str, Operand | None] = {}

    def of(self, operand: Operand) -> Operand | None:
        """Return the operand rewritten for the inner shape, or None if only a copy could have that shape."""
        if not isinstance(operand, str):
            return operand
        if operand not in self.made:
            self.made[operand] = self._of(self.site.graph[operand])
        return self.made[operand]

    def _of(self, node: Node) -> Operand | None:
        b, shape = self.site.builder, self._shape(node.shape)
        if shape is None:
            return None
        if node.kind == "view" and node.function == "reshape" and b.shape(node.sources[0]) == shape:
            return node.sources[0]
        if node.kind == "map":
            operands = [self.of(each) for each in node.inputs]
            known = [each for each in operands if each is not None]
            return b.map(node.function, *known, dtype=node.dtype) if len(known) == len(operands) else None
        if node.kind == "reduce":
            axes, source = axes_before(self.inner, self.outer, node.axes), self.of(node.inputs[0])
            return None if axes is None or not isinstance(source, str) else b.reduce(node.function, source, axes)
        return b.reshape(node.name, shape) if node.size == 1 else None

    def _shape(self, own: Shape) -> Shape | None:
        """Return the new shape, or None. Each group of axes must be present as a whole or broadcast as a whole."""
        padded = (1,) * (len(self.outer) - len(own)) + own
        shape = [1] * len(self.inner)
        for outer, inner in self.groups:
            if all(padded[axis] == self.outer[axis] for axis in outer):
                for axis in inner:
                    shape[axis] = self.inner[axis]
            elif any(padded[axis] != 1 for axis in outer):
                return None
        return tuple(shape)


@node_rule(
    "reshaped back",
    when="maps and reductions of a flattened tensor are reshaped back, and nothing else reads them",
    saves="a separate kernel: a reshape keeps nodes from sharing one",
)
def reshaped_back(site: Site) -> Operand | None:
    node, source = site.node, site.source()
    if node.kind != "view" or node.function != "reshape" or source is None or source.kind not in ("map", "reduce"):
        return None
    if 0 in node.shape or not source.shape:
        return None
    reshaped = _Reshaped(site, source.shape, node.shape)
    answer = reshaped.of(source.name)
    own = {name for name in reshaped.made if site.graph[name].kind in ("map", "reduce")}
    readers = [reader for name in own for reader in site.readers[name] if reader.name not in own]
    alike = all(reader.kind == "view" and reader.shape == node.shape for reader in readers)
    return answer if alike and own.isdisjoint(site.graph.outputs) else None


@node_rule(
    "reduction of a reshaped one",
    when="whole axes of a reshaped kernel result are reduced, nothing else reads the reshape, and no operand of that "
    "kernel is transposed",
    saves="a separate kernel: a reshape keeps nodes from sharing one",
)
def reduction_of_reshape(site: Site) -> Operand | None:
    node, source = site.node, site.source()
    if node.kind != "reduce" or source is None or source.kind != "view" or source.function != "reshape":
        return None
    inner = site.graph[source.sources[0]]
    if inner.kind not in ("map", "reduce") or not site.alone(source.name):
        return None
    # with a transposed operand, the rows are reduced by a kernel of their own, whose tiles are contiguous in memory
    if inner.kind == "reduce" and reads_across(site, inner.name):
        return None
    axes = axes_before(inner.shape, source.shape, node.axes)
    return None if not axes else site.builder.reshape(site.builder.reduce(node.function, inner.name, axes), node.shape)


def reads_across(site: Site, name: str) -> bool:
    """Return whether a node's kernel reads a tensor that is permuted so that its last axis is not contiguous.

    The kernel of a node also computes the maps, reductions and views before it, so the operands of these count too.
    """
    node = site.graph[name]
    if node.kind == "view" and node.function == "permute":
        return node.axes[-1] != len(node.axes) - 1
    return node.kind in ("map", "reduce", "view") and any(reads_across(site, source) for source in node.sources)


@node_rule(
    "reshape after a join",
    when="all joined tensors are reshaped kernel results, and the reshape only adds or removes axes of size one",
    saves="a kernel for each tensor that only copies it into the join",
)
def reshape_after_join(site: Site) -> Operand | None:
    node, b = site.node, site.builder
    if node.kind != "join":
        return None
    views, (axis,) = [site.graph[name] for name in node.sources], node.axes
    if not all(each.kind == "view" and each.function == "reshape" for each in views):
        return None
    pieces = [site.graph[each.sources[0]] for each in views]
    alike = all(_sizes(piece.shape) == _sizes(view.shape) for piece, view in zip(pieces, views, strict=True))
    if not alike or any(piece.kind not in ("map", "reduce") for piece in pieces):
        return None
    before = len(_sizes(views[0].shape[:axis]))
    inner, is_new = pieces[0].shape, node.function == "stack" or all(each.shape[axis] == 1 for each in views)
    if is_new:  # the pieces lack this axis, or have it with size one
        at = next(place for place in range(len(inner) + 1) if len(_sizes(inner[:place])) == before)
    elif all(each.shape[axis] != 1 for each in views):
        at = [place for place, size in enumerate(inner) if size != 1][before]
    else:
        return None
    around = {piece.shape if is_new else (*piece.shape[:at], *piece.shape[at + 1 :]) for piece in pieces}
    if len(around) > 1 or len({len(piece.shape) for piece in pieces}) > 1:
        return None
    joined = b.join("stack" if is_new else "cat", [piece.name for piece in pieces], at)
    return b.reshape(joined, node.shape)


def _sizes(shape: Shape) -> list[int]:
    return [size for size in shape if size != 1]


SHAPES = (reshaped_back, reduction_of_reshape, reshape_after_join)

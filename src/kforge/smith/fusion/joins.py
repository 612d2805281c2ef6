"""Finds matrix products whose results are concatenated to one larger matrix. The library then writes each product
directly into its part of that matrix, and the concatenation costs no copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.smith.ir.graph import Graph, Node


class Part(NamedTuple):
    """The rows and columns of a joined matrix that one product fills. `str()` gives the slice as Python source."""

    whole: str
    rows: tuple[int, int]
    columns: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.whole}[{self.rows[0]}:{self.rows[1]}, {self.columns[0]}:{self.columns[1]}]"


class Joins:
    """The concatenations of a graph that consist only of matrix products, with zeros beside them. Nothing else may read
    these products."""

    def __init__(self, graph: Graph, is_left_to_torch: Callable[[Node], bool]) -> None:
        self._graph = graph
        self._readers = graph.readers()
        self.parts: dict[str, Part] = {}
        """The part of a joined matrix that each product fills, by the product's name."""
        self.done: set[str] = set()
        """Names of joins, and of the paddings of their parts, that need no code because the products fill the joined
        matrix."""
        self.padded: set[str] = set()
        """Names of joined matrices that contain zeros, and so must be zeroed before the products are written."""
        for node in graph:
            if node.kind == "call" and node.function == "aten.cat.default":
                self._look_at(node, is_left_to_torch)

    def _look_at(self, whole: Node, is_left_to_torch: Callable[[Node], bool]) -> None:
        positional, named = whole.arguments
        if named or len(whole.shape) != 2:
            return
        axis = (positional[1] if len(positional) > 1 else 0) % 2
        found: dict[str, Part] = {}
        between, first = set[str](), 0
        for piece in whole.sources:
            product, before = self._product(piece)
            if product is None or not is_left_to_torch(product) or product.name in found:
                return
            beside = self._graph[piece].shape
            along = (first, first := first + beside[axis])
            if axis == 0:
                found[product.name] = Part(whole.name, along, (before, before + product.shape[1]))
            else:
                if piece != product.name:
                    return
                found[product.name] = Part(whole.name, (0, beside[0]), along)
            between |= {piece} - {product.name}
        self.parts |= found
        self.done |= {whole.name, *between}
        self.padded |= {whole.name} if between else set()

    def _product(self, name: str) -> tuple[Node | None, int]:
        """Return the product of which this part of a join consists, and the number of zero columns before it. (None, 0)
        if the part is not a product that nothing else reads."""
        node, before = self._graph[name], 0
        if node.function == "aten.constant_pad_nd.default" and self._alone(name):
            (_, padding, *value), named = node.arguments
            if len(padding) != 2 or min(padding) < 0 or value not in ([], [0], [0.0]) or named:
                return None, 0
            node, before = self._graph[node.sources[0]], padding[0]
        fits = node.kind == "call" and node.function == "aten.mm.default" and node.dtype == "float32"
        return (node, before) if fits and self._alone(node.name) else (None, 0)

    def _alone(self, name: str) -> bool:
        return len(self._readers[name]) == 1 and name not in self._graph.outputs

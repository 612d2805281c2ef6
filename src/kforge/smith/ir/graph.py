"""The graph of what a module computes: nodes of a few kinds, so that rules can reason about them.

    input, parameter    tensors from outside; a parameter has its dotted name in the module's state
    map                 one scalar function, applied to every element of its broadcast inputs
    reduce              sum, product, maximum or minimum over some axes, which stay with size one
    scan                running sum, product, maximum or minimum along an axis
    view                the same elements under another shape or in another order, or every n-th element
                        (reshape, permute, slice)
    join                the inputs one after the other along an axis (cat), or along a new axis (stack)
    call                a torch operator that was not lowered

There is no node for expansion, because `map` broadcasts its inputs as torch does. A scalar input is a plain number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Shape = tuple[int, ...]
Strides = tuple[int, ...]
Operand = str | int | float | bool
"""An input of a node: the name of another node, or a number."""

PIECE = "piece"
"""Name of the map that copies one input of a join, so that a kernel can write the copy directly into the join's
memory."""

_KEYWORDS = """
alignas auto bool case catch char class const continue default delete do double else enum explicit extern false float
for friend goto if inline int long mutable namespace new operator private protected public register return short signed
sizeof static struct switch template this throw true try typedef union unsigned using virtual void volatile while and as
assert async await def del elif except finally from global import in is lambda nonlocal not or pass raise with yield
None True False self super torch nn F library inline row block plane volume i j k l lane lanes start end begin part main
std kforge larger smaller batch column first count product piece parts tl range ready turn group done counts inside
place pair
"""
_RESERVED = frozenset(_KEYWORDS.split())
"""Names that no node may have: keywords of the target languages, and names that generated kernels use themselves."""


@dataclass(frozen=True)
class Node:
    """One operation or tensor of a graph. `name` is unique, `kind` is one of the kinds in the module's docstring, and
    `inputs` are names of other nodes or numbers."""

    name: str
    kind: str
    function: str
    """For `map`, `reduce` and `scan`: a name of `functions.py`. For `view`: reshape, permute or slice. For `join`: cat
    or stack. For `call`: torch's operator. For `parameter`: its dotted name."""
    inputs: tuple[Operand, ...]
    shape: Shape
    dtype: str
    axes: tuple[int, ...] = ()
    """For `reduce`: the axes that are reduced. For `permute`: the new order of axes. For `scan`, `slice` and `join`:
    the one axis along which they work."""
    arguments: Any = None
    """For `call`: its arguments, with a `Ref` for each node. For `input`: its position among the inputs. For `scan`:
    its `ScanMode`. For `slice`: the index of the first element, and the step, which is negative if the order is
    reversed."""
    origin: str = ""
    """Name of the torch operator that this node comes from, such as `softmax`. Kernels are named after it."""

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The names of the nodes that this node reads, without its numbers."""
        return tuple(each for each in self.inputs if isinstance(each, str))

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Ref:
    """Stands for a node among the arguments of a `call`."""

    name: str


@dataclass(frozen=True)
class ScanMode:
    """How a scan goes along its axis: forwards or backwards, inclusive or exclusive."""

    backwards: bool = False
    exclusive: bool = False
    """Whether each element gets the result of the elements before it only. The first element then gets the neutral
    value."""


def output(place: int) -> str:
    """Return the placeholder that stands for one output of a graph in `Graph.structure`."""
    return f"@{place}@"


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order, and the names of the output nodes."""

    nodes: Mapping[str, Node]
    outputs: tuple[str, ...]
    structure: str = output(0)
    """Python source of the value that the module returns, with placeholders for the outputs: `(@0@, @1@)`, `{'y':
    @0@}`."""

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def readers(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {name: [] for name in self.nodes}
        for node in self:
            for source in dict.fromkeys(node.sources):
                found[source].append(node)
        return found

    def live(self) -> Graph:
        """Return the graph without nodes that no output depends on. Inputs stay, since they are the module's
        signature."""
        needed = set(self.outputs)
        for node in reversed(list(self)):
            if node.name in needed:
                needed.update(node.sources)
        kept = {node.name: node for node in self if node.name in needed or node.kind == "input"}
        return replace(self, nodes=kept)


class Builder:
    """Makes a graph node by node, in topological order. It makes names unique, by adding a number."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.nodes: dict[str, Node] = {node.name: node for node in nodes}
        self.origin = ""

    def shape(self, operand: Operand) -> Shape:
        return self.nodes[operand].shape if isinstance(operand, str) else ()

    def dtype(self, operand: Operand) -> str:
        if isinstance(operand, str):
            return self.nodes[operand].dtype
        return "bool" if isinstance(operand, bool) else "int64" if isinstance(operand, int) else "float32"

    def input(self, name: str, place: int, shape: Shape, dtype: str) -> str:
        return self._add(Node(name, "input", "", (), shape, dtype, arguments=place))

    def parameter(self, name: str, path: str, shape: Shape, dtype: str) -> str:
        return self._add(Node(name, "parameter", path, (), shape, dtype))

    def map(self, function: str, *inputs: Operand, dtype: str = "") -> str:
        shape = broadcast(*(self.shape(each) for each in inputs))
        return self._add(Node(function, "map", function, inputs, shape, dtype or self._common(inputs)))

    def reduce(self, function: str, operand: str, axes: Iterable[int]) -> str:
        """Add a reduction and return its name. If there is nothing to reduce (no axes, or axes of size one), return the
        operand."""
        source = self.nodes[operand]
        named = {axis % max(1, len(source.shape)) for axis in axes} if source.shape else set()
        chosen = tuple(sorted(axis for axis in named if source.shape[axis] != 1))
        if not chosen:
            return operand
        shape = tuple(1 if axis in chosen else size for axis, size in enumerate(source.shape))
        return self._add(Node(function, "reduce", function, (operand,), shape, source.dtype, axes=chosen))

    def scan(self, function: str, operand: str, axis: int, mode: ScanMode | None = None) -> str:
        source, mode = self.nodes[operand], mode or ScanMode()
        node = Node(f"running_{function}", "scan", function, (operand,), source.shape, source.dtype, axes=(axis,))
        return self._add(replace(node, arguments=mode))

    def reshape(self, operand: str, shape: Shape) -> str:
        source = self.nodes[operand]
        if source.shape == tuple(shape):
            return operand
        if source.kind == "view" and source.function == "reshape":  # of several reshapes only the last one counts
            return self.reshape(source.sources[0], shape)
        return self._add(Node("view", "view", "reshape", (operand,), tuple(shape), source.dtype))

    def permute(self, operand: str, order: Iterable[int]) -> str:
        source, order = self.nodes[operand], tuple(order)
        if order == tuple(range(len(order))):
            return operand
        shape = tuple(source.shape[axis] for axis in order)
        return self._add(Node("view", "view", "permute", (operand,), shape, source.dtype, axes=order))

    def slice(self, operand: str, axis: int, start: int, step: int, count: int) -> str:
        source = self.nodes[operand]
        if (start, step, count) == (0, 1, source.shape[axis]):
            return operand
        shape = (*source.shape[:axis], count, *source.shape[axis + 1 :])
        view = Node("view", "view", "slice", (operand,), shape, source.dtype, axes=(axis,), arguments=(start, step))
        return self._add(view)

    def join(self, function: str, operands: Iterable[str], axis: int) -> str:
        """Add a join and return its name. Raises ValueError if the operands differ in dtype, because torch would
        convert them."""
        operands = tuple(operands)
        first = self.nodes[operands[0]]
        if any(self.dtype(each) != first.dtype for each in operands):
            raise ValueError("the tensors to join have different dtypes")
        rest = first.shape[axis:] if function == "stack" else first.shape[axis + 1 :]
        length = len(operands) if function == "stack" else sum(self.shape(each)[axis] for each in operands)
        shape = (*first.shape[:axis], length, *rest)
        return self._add(Node("joined", "join", function, operands, shape, first.dtype, axes=(axis,)))

    def call(self, name: str, function: str, arguments: Any, shape: Shape, dtype: str) -> str:
        names = tuple(ref.name for ref in refs_in(arguments))
        return self._add(Node(name, "call", function, names, tuple(shape), dtype, arguments=arguments))

    def _common(self, inputs: tuple[Operand, ...]) -> str:
        """Return the dtype that torch's type promotion gives. A plain number changes the dtype only if its kind is
        wider (float beats int)."""
        order = ("bool", "int64", "float32", "float64")
        tensors = [self.dtype(each) for each in inputs if isinstance(each, str)]
        numbers = [self.dtype(each) for each in inputs if not isinstance(each, str)]
        known = [each for each in tensors if each in order]
        if len(known) < len(tensors):
            return tensors[0]
        widest = max(known, key=order.index, default="")
        kind = max(numbers, key=order.index, default="bool")
        return kind if not widest or order.index(kind) > max(order.index(widest), 1) else widest

    def _add(self, node: Node) -> str:
        plain = f"{node.name}_" if node.name in _RESERVED else node.name
        name, number = plain, 2
        while name in self.nodes:
            name, number = f"{plain}_{number}" if plain[-1] != "_" else f"{plain}{number}", number + 1
        self.nodes[name] = replace(node, name=name, origin=node.origin or self.origin)
        return name


def broadcast(*shapes: Shape) -> Shape:
    """Return the common broadcast shape. Raises ValueError if the shapes cannot be broadcast."""
    result: list[int] = []
    for sizes in _columns(shapes):
        larger = {size for size in sizes if size != 1}
        if len(larger) > 1:
            raise ValueError(f"shapes {shapes} cannot be broadcast")
        result.append(larger.pop() if larger else 1)
    return tuple(result)


def _columns(shapes: tuple[Shape, ...]) -> Iterator[list[int]]:
    rank = max((len(shape) for shape in shapes), default=0)
    for axis in range(rank):
        yield [shape[axis - rank] if len(shape) >= rank - axis else 1 for shape in shapes]


def contiguous(shape: Shape) -> Strides:
    """Return the strides of a contiguous (row-major) tensor of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class Place(NamedTuple):
    """Where the elements of a node lie: the node that owns the memory, the strides, and the index of the first
    element."""

    base: str
    strides: Strides
    offset: int = 0


def placed(graph: Graph) -> dict[str, Place]:
    """Return where the elements of every node lie in memory.

    A view lies in its source's memory if strides can express it; otherwise it has memory of its own. The pieces of a
    join lie in the join's memory.
    """
    places: dict[str, Place] = {}
    pieces = dict(_pieces(graph))
    for node in graph:
        places[node.name] = pieces.get(node.name, Place(node.name, contiguous(node.shape)))
        if node.kind != "view":
            continue
        source = graph[node.sources[0]]
        base, strides, offset = places[source.name]
        if node.function == "permute":
            places[node.name] = Place(base, tuple(strides[axis] for axis in node.axes), offset)
        elif node.function == "slice":
            (axis,), (start, step) = node.axes, node.arguments
            steps = tuple(each * step if i == axis else each for i, each in enumerate(strides))
            places[node.name] = Place(base, steps, offset + start * strides[axis])
        elif (regrouped := _reshaped(strides, source.shape, node.shape)) is not None:
            places[node.name] = Place(base, regrouped, offset)
    return places


def with_pieces(graph: Graph) -> Graph:
    """Return the graph with a copy (`PIECE`) before each input of a join, so that a kernel can write the input directly
    into the join's memory."""
    builder = Builder()
    for node in graph:
        if node.kind == "join":
            builder.origin = node.origin
            node = replace(node, inputs=tuple(builder.map(PIECE, name, dtype=node.dtype) for name in node.sources))
        builder.nodes[node.name] = node
    return replace(graph, nodes=builder.nodes)


def _pieces(graph: Graph) -> Iterator[tuple[str, Place]]:
    """Yield the name of each piece of a join, and where the piece lies in the join's memory."""
    for node in graph:
        if node.kind != "join":
            continue
        (axis,), strides, start = node.axes, contiguous(node.shape), 0
        stacked = node.function == "stack"
        for name in node.sources:
            if graph[name].function == PIECE:
                own = (*strides[:axis], *strides[axis + 1 :]) if stacked else strides
                yield name, Place(node.name, own, start * strides[axis])
            start += 1 if stacked else graph[name].shape[axis]


def _reshaped(strides: Strides, old: Shape, new: Shape) -> Strides | None:
    """Return the strides of the same elements under the shape `new`, or None if strides cannot express that shape."""
    if strides == contiguous(old):
        return contiguous(new)
    found: list[int] = []
    rest = [(size, stride) for size, stride in zip(old, strides, strict=True) if size != 1]
    for size in new:
        if size == 1:
            found.append(0)
            continue
        if not rest:
            return None
        whole, stride = rest.pop(0)
        while whole < size and rest and stride == rest[0][0] * rest[0][1]:  # merge contiguous axes
            whole, stride = whole * rest[0][0], rest.pop(0)[1]
        if whole % size:
            return None
        found.append(stride * (whole // size))
        if whole > size:
            rest.insert(0, (whole // size, stride))
    return tuple(found) if not rest else None


def without_refs(arguments: Any, value_of: Callable[[str], Any]) -> Any:
    """Return the nested arguments of a `call` with `value_of(name)` in place of each node (`Ref`)."""
    match arguments:
        case Ref(name):
            return value_of(name)
        case dict():
            return {key: without_refs(value, value_of) for key, value in arguments.items()}
        case list() | tuple():
            return type(arguments)(without_refs(value, value_of) for value in arguments)
    return arguments


def refs_in(arguments: Any) -> Iterator[Ref]:
    """Yield the nodes (`Ref`) anywhere in the nested arguments of a `call`."""
    match arguments:
        case Ref():
            yield arguments
        case dict():
            for value in arguments.values():
                yield from refs_in(value)
        case list() | tuple():
            for value in arguments:
                yield from refs_in(value)

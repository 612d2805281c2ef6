"""Makes the graph of a problem: torch.export records the module's operators, and each known operator is lowered.
(torch)"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.problems.live.exporting import one_line, quiet
from kforge.problems.live.literals import Code, source_of
from kforge.smith.frontend.lowering import CONVERSIONS, LABELLED, LOWERINGS, POINTWISE, VALUES_ONLY, NotLowered
from kforge.smith.ir.graph import Builder, Graph, Ref, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node as Traced

    from kforge.problems.instance import Instance

LOWERED_DTYPES = frozenset({"float32", "bool"})
"""The dtypes that kernels compute with. An operator on another dtype stays a call of torch."""
READ_DTYPES = frozenset({*LOWERED_DTYPES, "uint8", "int32", "int64"})
"""The dtypes that a kernel may read if all it does with them is a conversion to float32."""


LARGE = 1 << 29
"""Size of inputs and weights, in bytes, from which tracing uses fake tensors, which have no memory.

Fake tensors make tracing a few times slower, so smaller problems use real tensors.
"""


class Untraceable(Exception):
    """Raised if a module cannot be turned into a graph. The message says why, in one line."""


def trace(instance: Instance) -> Graph:
    """Return the graph of one call of the problem's module. Raises Untraceable."""
    program = _exported_without_values(instance)
    if program is None:
        program = _exported(instance.make_model(), instance.inputs(0))
    return _Translation(program).graph()


def _exported_without_values(instance: Instance) -> torch.export.ExportedProgram | None:
    """Return the module exported with fake tensors, which have a shape but no memory. Used for workloads whose real
    tensors would take long to fill.

    Returns None if the workload is small, or if the module cannot be exported with fake tensors (for example because it
    reads values). The caller then exports the module with real tensors.
    """
    try:
        with FakeTensorMode():
            model, inputs = instance.make_model(), instance.inputs(0)
        tensors = [*model.state_dict().values(), *(each for each in inputs if isinstance(each, torch.Tensor))]
        is_large = sum(each.nbytes for each in tensors) >= LARGE
        return _exported(model, inputs) if is_large else None
    except (Untraceable, ProblemError):
        return None


def _exported(model: torch.nn.Module, inputs: list[Any]) -> torch.export.ExportedProgram:
    if not all(isinstance(each, torch.Tensor) for each in inputs):
        raise Untraceable("an input is not a tensor")
    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(model, tuple(inputs), strict=False)
            if any(_mutates(node) for node in program.graph.nodes):
                program = program.run_decompositions({})
    except Exception as error:  # torch.export raises any error of the module's code and of torch itself
        raise Untraceable(f"torch.export fails: {one_line(error)}") from error
    return program


def _mutates(node: Traced) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


class _Translation:
    """Translates one exported program to a graph, node by node."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self.builder = Builder()
        self.names: dict[Traced, str] = {}
        self.several: dict[Traced, tuple[str, ...]] = {}
        """Names of the results of each operator that returns several tensors."""
        self.shapes: dict[Traced, tuple[int, ...]] = {}
        """The shape that torch gives to each node. The graph does not expand tensors, so its node may have a smaller
        shape."""

    def graph(self) -> Graph:
        signature = self.program.graph_signature
        if any(spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs):
            raise Untraceable("the module changes its own state")
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        place = 0
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                spec = specs[node.name]
                shape, dtype = _described(node)
                if spec.kind is InputKind.USER_INPUT:
                    self._know(node, self.builder.input(node.name, place, shape, dtype))
                    place += 1
                elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                    assert spec.target is not None
                    self._know(node, self.builder.parameter(_identifier(spec.target), spec.target, shape, dtype))
                else:
                    raise Untraceable("the module holds constants that are not in its state")
            elif node.op == "call_function":
                self._translate(node)
            elif node.op == "output":
                return self._with_outputs(node.args[0])
        raise Untraceable("torch.export gives no output")

    def _translate(self, node: Traced) -> None:
        name = _operator(node)
        self.builder.origin = name
        before = dict(self.builder.nodes)
        if name in ("expand", "expand_as") and _described(node)[1] in LOWERED_DTYPES:
            self._know(node, self.names[node.args[0]], _described(node)[0])  # type: ignore[index]
            return
        if name == "getitem" and node.args[0] in self.several:
            if node.users:
                self._know(node, self.several[node.args[0]][node.args[1]])  # type: ignore[index]
            return
        if name in LOWERINGS and self._can_be_lowered(node):
            try:
                operand: Callable[[Traced], str] = self.names.__getitem__ if name in POINTWISE else self._whole
                arguments = pytree.tree_map_only(torch.fx.Node, operand, (node.args, node.kwargs))
                lowered = LOWERINGS[name](self.builder, *arguments[0], **arguments[1])
                if isinstance(lowered, tuple):
                    self.several[node] = lowered
                else:
                    self._know(node, lowered)
                return
            except (NotLowered, TypeError, ValueError):  # or an overload that is not supported
                self.builder.nodes = before
        self._keep(node)

    def _can_be_lowered(self, node: Traced) -> bool:
        if _operator(node) in CONVERSIONS:
            return _described(node)[1] in LOWERED_DTYPES and _described(node.all_input_nodes[0])[1] in READ_DTYPES
        if _operator(node) in VALUES_ONLY:
            read = [user for user in node.users if user.users]
            return all(user.args[1] == 0 for user in read) and _described(node.all_input_nodes[0])[1] == "float32"
        read = node.all_input_nodes[:1] if _operator(node) in LABELLED else node.all_input_nodes
        values = [node.meta.get("val"), *(each.meta.get("val") for each in read)]
        tensors = [each for value in values for each in (value if isinstance(value, list | tuple) else [value])]
        return all(isinstance(each, torch.Tensor) and _dtype(each) in LOWERED_DTYPES for each in tensors)

    def _keep(self, node: Traced) -> None:
        """Add the node to the graph as a call of torch's operator."""

        def whole(each: Traced) -> Ref:
            return Ref(self._whole(each))

        arguments = pytree.tree_map_only(torch.fx.Node, whole, (list(node.args), dict(node.kwargs)))
        shape, dtype = _described(node)
        self._know(node, self.builder.call(_operator(node), str(node.target), arguments, shape, dtype))

    def _whole(self, node: Traced) -> str:
        """Return the name of the node in torch's full shape. Adds a call of torch's `expand` if the graph has the
        smaller shape."""
        name, shape = self.names[node], self.shapes[node]
        if self.builder.shape(name) != shape and self.builder.dtype(name) in LOWERED_DTYPES:
            return self.builder.call(
                "expand", "aten.expand.default", ([Ref(name), list(shape)], {}), shape, self.builder.dtype(name)
            )
        return name

    def _know(self, node: Traced, name: str, shape: tuple[int, ...] | None = None) -> None:
        self.names[node] = name
        self.shapes[node] = _described(node)[0] if shape is None else shape

    def _with_outputs(self, given: Any) -> Graph:
        leaves = pytree.tree_leaves(given)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)]
        if not all(isinstance(leaf.meta.get("val"), torch.Tensor) for leaf in tensors):
            raise Untraceable("an output is a number that depends on a tensor")
        places = iter(range(len(tensors)))
        spoken = [Code(output(next(places))) if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
        spec = self.program.call_spec.out_spec
        try:
            structure = source_of(pytree.tree_unflatten(spoken, spec) if spec is not None else spoken[0])
        except ProblemError as error:
            raise Untraceable(f"an output cannot be written as Python source: {error}") from error
        return Graph(self.builder.nodes, tuple(self._whole(leaf) for leaf in tensors), structure).live()


def _identifier(dotted: str) -> str:
    """Return an identifier that is valid in Python and C++ for a dotted name: `layers_0_weight` for layers.0.weight,
    `part_0_weight` for 0.weight."""
    name = re.sub(r"\W", "_", dotted, flags=re.ASCII)
    return f"part_{name}" if name[0].isdigit() else name


def _operator(node: Traced) -> str:
    """Return the operator's name without namespace and overload: `softmax` for aten.softmax.int."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target.overloadpacket.__name__)
    return str(getattr(target, "__name__", target))


def _described(node: Traced) -> tuple[tuple[int, ...], str]:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        if not all(isinstance(size, int) for size in value.shape):  # for example the result of a masked selection
            raise Untraceable("the size of a tensor depends on the values of another tensor")
        return tuple(value.shape), _dtype(value)
    return (), type(value).__name__


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")

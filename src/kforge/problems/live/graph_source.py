"""Writes the graph of an exported module as Python statements, the body of `forward`. (torch)"""

from __future__ import annotations

import keyword
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.problems.live.literals import Code, source_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram

RESERVED = frozenset({"self", "torch", "nn", "aten", "float"})
"""Names that a variable in `forward` must not have."""
CHECKS = frozenset({"_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size"})
"""Operators that only check what was true when the module was traced. They are left out."""

INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
}
"""Arithmetic on Python numbers, such as the results of `Tensor.item`."""


class Argument(NamedTuple):
    """One leaf of the example inputs, and the expression that accesses it, such as `pair[0]['q']`."""

    expression: str
    value: Any


def arguments_of(names: Sequence[str], example_inputs: tuple[Any, ...]) -> list[Argument]:
    """Return the leaves of the inputs, in the order of the graph's inputs."""
    leaves = []
    for name, value in zip(names, example_inputs, strict=True):
        paths, _ = pytree.tree_flatten_with_path(value)
        leaves += [Argument(name + pytree.keystr(path), leaf) for path, leaf in paths]
    return leaves


def forward_source(program: ExportedProgram, state: Mapping[str, str], arguments: Sequence[Argument]) -> list[str]:
    """Return the statements of `forward`, the last of which returns the result.

    `state` has an expression for each parameter, buffer and constant of the program. At least one argument must be a
    tensor. Raises ProblemError for control flow, and for operators that exist only in this process.
    """
    writer = _GraphWriter(arguments)
    user_inputs = iter(arguments)
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        target = specs[node.name].target
        writer.expressions[node] = next(user_inputs).expression if target is None else state[target]
    live = _live(program.graph)
    for node in program.graph.nodes:
        if node.op == "output":
            tree = pytree.tree_unflatten(list(writer.resolve(node.args[0])), program.call_spec.out_spec)
            writer.lines.append(f"return {source_of(tree)}")
        elif node.op != "placeholder" and node in live:
            writer.write(node)
    return writer.lines


class _GraphWriter:
    """Writes one statement for each node of a graph."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self.lines: list[str] = []
        self.expressions: dict[fx.Node, str] = {}
        self._taken = {argument.expression.partition("[")[0] for argument in arguments}
        # Tensors made inside `forward` must be on the device of its inputs, not on the one where the module was traced.
        tensors = [argument.expression for argument in arguments if isinstance(argument.value, torch.Tensor)]
        self._device = f"{tensors[0]}.device"

    def write(self, node: fx.Node) -> None:
        """Add the statement of a node. Raises ProblemError if it cannot be written."""
        target: Any = node.target
        if node.op != "call_function":
            raise ProblemError(
                f"the module's graph contains a {node.op} ({node.target}), which cannot be written as plain Python"
            )
        if target is operator.getitem:
            container, index = node.args
            self._assign(node, f"{self._source(container)}[{self._source(index)}]")
        elif isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
            self._write_aten(node, target.overloadpacket.__name__)
        elif target in INFIX:
            left, right = map(self._source, node.args)
            self._assign(node, f"{left} {INFIX[target]} {right}")
        else:
            raise ProblemError(f"the module uses the operator {target}, which cannot be written into a problem file")

    def _write_aten(self, node: fx.Node, name: str) -> None:
        # The tracer wraps constants in `lift_fresh_copy` and `detach_`. Outside of tracing, the first is a clone, and
        # the second has no effect.
        if name == "lift_fresh_copy":
            self._assign(node, f"{self._source(node.args[0])}.clone()")
        elif name == "detach_":
            self.expressions[node] = self._source(node.args[0])
        else:
            self._assign(node, f"aten.{name}({self._arguments(node)})")

    def _assign(self, node: fx.Node, expression: str) -> None:
        """Add a statement that assigns the expression to a variable with the node's name."""
        name = node.name
        while name in self._taken or name in RESERVED or keyword.iskeyword(name):
            name += "_"
        self._taken.add(name)
        self.expressions[node] = name
        self.lines.append(f"{name} = {expression}" if node.users else expression)

    def _arguments(self, node: fx.Node) -> str:
        named = {key: item for key, item in node.kwargs.items() if key != "pin_memory"}
        keywords = (f"{key}={self._source(item)}" for key, item in named.items())
        return ", ".join([*map(self._source, node.args), *keywords])

    def resolve(self, argument: Any) -> Any:
        """Return a node's argument with its nodes and devices replaced by source text."""

        def leaf(item: Any) -> Any:
            if isinstance(item, fx.Node):
                return Code(self.expressions[item])
            return Code(self._device) if isinstance(item, torch.device) else item

        return map_aggregate(argument, leaf)

    def _source(self, argument: Any) -> str:
        return source_of(self.resolve(argument))


def _live(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes whose results are used, or that write to a tensor. The tracer's checks do not count."""
    live: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        target: Any = node.target
        is_operator = isinstance(target, torch._ops.OpOverload)
        if is_operator and target.overloadpacket.__name__ in CHECKS:
            continue
        writes = is_operator and target._schema.is_mutable
        if node.op == "output" or writes or any(user in live for user in node.users):
            live.add(node)
    return live

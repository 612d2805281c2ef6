"""Evaluates a graph with torch, node by node. Slow and simple: it defines what a graph means, and tests compare every
rewrite of a graph with it. (torch)

It computes in the dtype of the inputs that it is given: float64 inputs give float64 results, whatever dtype was traced.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from kforge.smith.ir.functions import MAPS, REDUCTIONS
from kforge.smith.ir.graph import without_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.smith.ir.graph import Graph, Node, Operand


def evaluate(
    graph: Graph, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return the outputs of a graph. `state` has the parameters by their dotted names."""
    values: dict[str, Any] = {}
    for node in graph:
        match node.kind:
            case "input":
                values[node.name] = inputs[node.arguments]
            case "parameter":
                values[node.name] = state[node.function]
            case "map":
                values[node.name] = _map(
                    node, [values[each] if isinstance(each, str) else each for each in node.inputs]
                )
            case "reduce":
                values[node.name] = _reduce(node, values[node.sources[0]])
            case "scan":
                values[node.name] = _scan(node, values[node.sources[0]])
            case "view":
                values[node.name] = _view(node, values[node.sources[0]])
            case "join":
                parts = [values[name] for name in node.sources]
                values[node.name] = getattr(torch, node.function)(parts, dim=node.axes[0])
            case _:
                positional, named = without_refs(node.arguments, values.__getitem__)
                values[node.name] = operator_of(node.function)(*positional, **named)
    return tuple(values[name] for name in graph.outputs)


def operator_of(function: str) -> Callable[..., Any]:
    """Return torch's operator for the function of a `call` node, such as `aten.linear.default`."""
    if function == str(operator.getitem):
        return operator.getitem
    found: Any = torch.ops
    for part in function.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _map(node: Node, operands: Sequence[Operand | torch.Tensor]) -> torch.Tensor:
    floats = [each.dtype for each in operands if isinstance(each, torch.Tensor) and each.dtype.is_floating_point]
    if node.function == "float":
        return torch.as_tensor(operands[0]).to(floats[0] if floats else torch.get_default_dtype())
    tensors = [each if isinstance(each, torch.Tensor) else _number(each, floats) for each in operands]
    return getattr(torch, MAPS[node.function].torch)(*tensors)  # type: ignore[no-any-return]


def _scan(node: Node, value: torch.Tensor) -> torch.Tensor:
    (axis,), mode, reduction = node.axes, node.arguments, REDUCTIONS[node.function]
    given = value.flip(axis) if mode.backwards else value
    if mode.exclusive:
        nothing = torch.full_like(given.narrow(axis, 0, 1), reduction.nothing)
        given = torch.cat((nothing, given.narrow(axis, 0, given.shape[axis] - 1)), dim=axis)
    found = getattr(torch, reduction.running)(given, dim=axis)
    found = found if isinstance(found, torch.Tensor) else found.values
    return found.flip(axis) if mode.backwards else found


def _view(node: Node, source: torch.Tensor) -> torch.Tensor:
    match node.function:
        case "permute":
            return source.permute(node.axes)
        case "slice":
            start, step = node.arguments
            indices = torch.arange(node.shape[node.axes[0]], device=source.device) * step + start
            return source.index_select(node.axes[0], indices)
    return source.reshape(node.shape)


def _number(value: Operand, floats: Sequence[torch.dtype]) -> torch.Tensor:
    """Return a number as a tensor, in the dtype of the floating-point tensors that it is combined with. A bool stays
    bool."""
    if isinstance(value, bool):
        return torch.tensor(value)
    return torch.tensor(value, dtype=floats[0] if floats else None)


def _reduce(node: Node, value: torch.Tensor) -> torch.Tensor:
    function = getattr(torch, REDUCTIONS[node.function].torch)
    if node.function != "prod":
        return function(value, dim=node.axes, keepdim=True)  # type: ignore[no-any-return]
    for axis in node.axes:  # torch multiplies along one axis at a time
        value = function(value, dim=axis, keepdim=True)
    return value

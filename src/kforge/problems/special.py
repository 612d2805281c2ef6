"""Integers that a module treats unlike all others: targets that do not count, padding. (torch)

Draws hardly ever hold them. Which there are is guessed from integers in the module's source and attributes; one that
lies within the range of the given values may be used as it is. One outside of it is special where the module takes
it and neither of its neighbours: -100 of a cross-entropy is, and -1 as the last place of a list is not, which a kernel
need not know.

Larger integers than any given one are tried as well (`larger_integers`): where the module fails for large ones only, as
an index out of bounds does, it says itself which it takes.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge import syntax
from kforge.errors import ProblemError
from kforge.problems.discrete import DISCRETE
from kforge.problems.randomness import seeded
from kforge.problems.tensors import HOST, cloned, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from kforge.problems.instance import Instance
    from kforge.problems.structure import Leaf, Structure

USUAL = (-100, -1, 255)
"""What is usual outside of the range of classes."""
MOST_TRIED, MOST_USED = 6, 32
"""Integers outside of the range that are tried, each by up to three calls, and those that are used of all."""
SHARE = 0.25
"""Of the elements, those that become special."""
GROWTH, MOST_STEPS, LARGEST = 4, 6, 1 << 22
"""Larger integers are tried in steps of this factor, so many of them, up to this number: a module may make a tensor as
long as the largest integer says."""
SEED = 31
"""Of the module that is tried; that tests the problem, so it need not be secret."""


def may_be_special(leaf: Leaf) -> bool:
    """Whether single elements of an integer tensor may have other values: they are no offsets and no lengths."""
    ordered = leaf.ascending or leaf.total is not None
    return leaf.kind == "integer" and 0 <= leaf.low < leaf.high and leaf.varies and not ordered


def special_integers(instance: Instance, inputs: list[Any], structure: Structure) -> dict[int, list[int]]:
    """For each tensor of the inputs that may hold some: which. Raises ProblemError where the module cannot be made."""
    places = [place for place, leaf in enumerate(structure.leaves) if may_be_special(leaf)]
    if not places or len(tensors_in(inputs)) != len(structure.leaves):
        return {}
    model, inputs = _on_host(instance, inputs)
    named = sorted({*_of_source(instance.problem.source), *_of_attributes(model)})
    found = {}
    for place in places:
        leaf = structure.leaves[place]
        within = [number for number in named if leaf.low <= number <= leaf.high]
        beyond = dict.fromkeys([*USUAL, *(number for number in named if number < 0)])
        tried = [number for number in beyond if not leaf.low <= number <= leaf.high][:MOST_TRIED]

        def takes(number: int, place: int = place) -> bool:
            return _takes(model, inputs, place, number)

        special = [number for number in tried if _stands_alone(number, leaf, takes)]
        if special or within:
            found[place] = [*special, *within][:MOST_USED]
    return found


def larger_integers(instance: Instance, inputs: list[Any], structure: Structure) -> dict[int, int | None]:
    """For each tensor of integers that may be larger: up to which number; None where the module sets no limit.

    A tensor whose integers are as large as the module takes is not there. Without a limit a module may mean anything by
    a large integer (no expert of that number), so none is used. Raises ProblemError where the module cannot be made.
    """
    places = [place for place, leaf in enumerate(structure.leaves) if may_be_special(leaf)]
    if not places or len(tensors_in(inputs)) != len(structure.leaves):
        return {}
    model, inputs = _on_host(instance, inputs)
    found: dict[int, int | None] = {}
    for place in places:
        high = int(structure.leaves[place].high)
        shapes, taken = _shapes(model, inputs, place, high), high

        def looks(number: int, place: int = place) -> list[torch.Size] | None:
            return _shapes(model, inputs, place, number)

        for number in _steps(high, torch.iinfo(tensors_in(inputs)[place].dtype).max):
            if (now := looks(number)) != shapes:
                break
            taken = number
        else:
            now = shapes
        if now is not None:  # no limit, or it says how large the output is
            found[place] = None
        elif (most := 2 * taken + 1 if looks(2 * taken + 1) == shapes else taken) > high:
            found[place] = most
    return found


def _steps(high: int, most: int) -> list[int]:
    """Numbers to try, smallest first."""
    return [number for step in range(1, MOST_STEPS + 1) if (number := (high + 1) * GROWTH**step) <= min(most, LARGEST)]


def with_larger(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, larger: dict[int, int]
) -> list[Any]:
    """The same inputs with integers between the smallest given one and the largest that the module takes."""
    leaves = [
        replace(leaf, high=larger[place]) if place in larger else replace(leaf, kind="other")
        for place, leaf in enumerate(structure.leaves)
    ]
    return DISCRETE["other_integers"][0](inputs, generator, type(structure)(leaves))


def _on_host(instance: Instance, inputs: list[Any]) -> tuple[nn.Module, list[Any]]:
    """The module and its inputs where an index out of bounds is an error."""
    with seeded(SEED):
        model = instance.make_model().to(HOST)
    return model, pytree.tree_map(lambda leaf: leaf.to(HOST) if isinstance(leaf, Tensor) else leaf, inputs)


def _stands_alone(number: int, leaf: Leaf, takes: Callable[[int], bool]) -> bool:
    neighbours = [each for each in (number - 1, number + 1) if not leaf.low <= each <= leaf.high]
    return takes(number) and not any(map(takes, neighbours))


def _takes(model: nn.Module, inputs: list[Any], place: int, number: int) -> bool:
    return _shapes(model, inputs, place, number) is not None


def _shapes(model: nn.Module, inputs: list[Any], place: int, number: int) -> list[torch.Size] | None:
    """Of the outputs with this number in one place of that tensor; None where the module gives no finite result."""
    inputs = cloned(inputs)
    try:
        tensors_in(inputs)[place].view(-1)[0] = number
        with torch.no_grad():
            outputs = tensors_in(model(*inputs))
    except Exception:  # whatever the module raises, it does not take it
        return None
    return [output.shape for output in outputs] if all(bool(each.isfinite().all()) for each in outputs) else None


def _of_source(source: str) -> Iterator[int]:
    try:
        tree = syntax.parsed(source)
    except syntax.Unparsable as error:
        raise ProblemError(f"the problem's source: {error.reason}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_integer(node.operand):
            yield -node.operand.value  # type: ignore[attr-defined]
        elif _is_integer(node):
            yield node.value  # type: ignore[attr-defined]


def _is_integer(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _of_attributes(model: nn.Module) -> Iterator[int]:
    for module in model.modules():
        yield from (value for value in vars(module).values() if type(value) is int)


def with_special(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, special: dict[int, list[int]]
) -> list[Any]:
    """The same inputs with special integers at random places."""
    fresh = {}
    for place, tensor in enumerate(tensors_in(inputs)):
        if place in special and tensor.numel():
            values = _spread(tensor, special[place], generator, distinct=structure.leaves[place].distinct)
            fresh[id(tensor)] = torch.empty_like(tensor).copy_(values)
    return list(pytree.tree_map(lambda leaf: fresh.get(id(leaf), leaf), list(inputs)))


def _spread(tensor: Tensor, numbers: Sequence[int], generator: torch.Generator, *, distinct: bool) -> Tensor:
    """These numbers at some places; `distinct`: once in a row, and only where the row does not hold it yet."""
    device = generator.device
    rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)
    drawn = torch.randint(
        len(numbers), (rows.shape[0], 1 if distinct else rows.shape[1]), generator=generator, device=device
    )
    other = torch.tensor(numbers, dtype=tensor.dtype, device=device)[drawn].to(rows.device)
    draws = torch.rand(rows.shape, generator=generator, device=device).to(rows.device)
    chosen = draws < SHARE
    if distinct:
        chosen = (draws == draws.amax(1, keepdim=True)) & ~(rows == other).any(1, keepdim=True)
    return torch.where(chosen, other, rows).reshape(tensor.shape)

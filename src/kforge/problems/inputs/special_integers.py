"""Finds integers that a module treats in a special way: ignored targets, padding. (torch)

Draws hardly ever hold them. Candidates are the integers in the module's source and attributes, the sizes of its
parameters, and the neighbours of all these (the last token of a vocabulary is its size minus one). One that lies within
the range of the given values may be used as it is. One outside it is special where the module accepts it and neither of
its neighbours: -100 of a cross-entropy is special, and -1 as the last element of a list is not, which a kernel need not
know. One next to the range counts as within where draws may well reach it, and one above it where it is the last that
the module accepts.

Integers larger than any given one are tried as well (`larger_integers`): a module that fails only for large ones, as
for an index out of bounds, shows which it accepts. Where it accepts any, integers of one number that is no size of an
input (how far a cache is filled) go up to the next such size. Numbers of eight or sixteen bits that use a good part of
these bits are quantities and no names: they go to both ends of their dtype.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge import syntax
from kforge.errors import ProblemError
from kforge.problems.inputs.discrete import DISCRETE, fixed_ends, rows_of
from kforge.problems.inputs.trial import on_host, output_shapes
from kforge.problems.tensors import cloned, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from kforge.problems.inputs.structure import Leaf, Structure
    from kforge.problems.instance import Instance

USUAL = (-100, -1, 255)
"""Usual special values outside the range of classes."""
MOST_TRIED, MOST_ABOVE, MOST_USED = 6, 4, 32
"""Most integers outside the range that are tried as special ones, each by up to three calls; most of those above it
that the module names, or that follow its largest one (a void class); and most that are used in all."""
MOST_AT_THE_END, MOST_BELOW, REACH = 4, 24, 8.0
"""Most integers above the range that are tried, each by up to two calls; most below it, all by one call; and how far
outside they may be, in usual distances of two drawn integers, so that other draws may hold them."""
NARROW = (torch.int8, torch.uint8, torch.int16)
LEAST_SIGNED, LEAST_PART = -8, 4
"""Integers of these dtypes are quantities where some are lower than the first number (which four bits can hold), or
unsigned ones reach the largest one divided by the second: class labels and codes of four bits do not."""
SHARE = 0.25
"""Share of the elements that become special."""
GROWTH, MOST_STEPS, LARGEST = 4, 6, 1 << 22
"""Larger integers are tried in steps of this factor, at most this many steps, up to this number: a module may make a
tensor as long as the largest integer."""
LEAST_LENGTH = 2
"""Integers of one number below this are masks or names."""


def may_be_special(leaf: Leaf) -> bool:
    """Return whether single elements of an integer tensor may have other values: they are no offsets and no lengths.

    Those of one number throughout may, since they are no lengths of parts of a whole.
    """
    if leaf.is_one_number:
        return True
    ordered = leaf.ascending or leaf.total is not None
    return leaf.kind == "integer" and leaf.low < leaf.high and leaf.varies and not ordered


def are_sorted_names(given: Tensor, leaf: Leaf) -> bool:
    """Return whether these integers are in ascending order and no offsets: those begin or end with the same number."""
    return leaf.kind == "integer" and leaf.ascending and leaf.varies and not any(fixed_ends(rows_of(given), leaf))


def _drawn_range(leaf: Leaf) -> Leaf:
    """Return the leaf with the range from which other cases draw: integers of one number go down to zero in them."""
    return replace(leaf, low=0, high=max(leaf.high, 1), total=None) if leaf.is_one_number else leaf


def special_integers(instance: Instance, inputs: list[Any], structure: Structure) -> dict[int, list[int]]:
    """Return the special integers of each input tensor that may hold some. Raises ProblemError where the module cannot
    be made."""
    places = [place for place, leaf in enumerate(structure.leaves) if may_be_special(leaf)]
    if not places or len(tensors_in(inputs)) != len(structure.leaves):
        return {}
    model, inputs = on_host(instance, inputs)
    named = sorted({*_of_source(instance.problem.source), *_of_attributes(model)})
    bases = sorted({*named, *_of_parameters(model)})
    found = {}
    for place in places:
        leaf, count = _drawn_range(structure.leaves[place]), tensors_in(inputs)[place].numel()
        rare = [base + step for base in bases for step in (1, 0, -1)] if leaf.high - leaf.low > count else []
        within = dict.fromkeys(each for each in (*named, *reversed(rare)) if leaf.low <= each <= leaf.high)
        if structure.leaves[place].is_one_number:  # its range is short and drawn in other cases
            rare, within = [], {}
        beyond = dict.fromkeys([*USUAL, *(number for number in named if number < 0)])
        tried = [number for number in beyond if not leaf.low <= number <= leaf.high][:MOST_TRIED]
        above = {int(leaf.high) + 1, *(number for number in named if number > leaf.high)} - set(tried)
        tried += sorted(above)[:MOST_ABOVE]

        def takes(*numbers: int, place: int = place) -> bool:
            return _shapes(model, inputs, place, *numbers) is not None

        special = [number for number in tried if _stands_alone(number, leaf, takes)]
        if rare:
            special += [number for number in _at_the_ends(bases, leaf, count, takes) if number not in special]
        if special or within:
            found[place] = [*special, *within][:MOST_USED]
    return found


def _at_the_ends(bases: Sequence[int], leaf: Leaf, count: int, takes: Callable[..., bool]) -> list[int]:
    """Return the integers outside the range that draws may well reach, or that are the last ones the module accepts."""
    reach = REACH * (leaf.high - leaf.low) / max(count, 1)
    least = leaf.low - reach if leaf.low < 0 else max(0, leaf.low - reach)
    below = sorted({base + step for base in bases for step in (-1, 0, 1) if least <= base + step < leaf.low})
    below = below[: min(MOST_BELOW, count)]
    above = [base - 1 for base in bases if base - 1 > leaf.high][:MOST_AT_THE_END]
    ends = [number for number in above if takes(number) and (number <= leaf.high + reach or not takes(number + 1))]
    return [*ends, *(below if below and takes(*below) else [])]


def larger_integers(instance: Instance, inputs: list[Any], structure: Structure) -> dict[int, tuple[int, int] | None]:
    """Return the range of each integer tensor that may leave its given range; None where there is no limit.

    Tensors whose integers are already as large as the module accepts are left out. Without a limit a large integer may
    mean anything (no expert of that number), so none is used, unless they are quantities of few bits. Raises
    ProblemError where the module cannot be made.
    """
    if len(tensors_in(inputs)) != len(structure.leaves):
        return {}
    both = list(enumerate(zip(structure.leaves, tensors_in(inputs), strict=True)))
    places = [place for place, (leaf, given) in both if may_be_special(leaf) or are_sorted_names(given, leaf)]
    if not places:
        return {}
    model, inputs = on_host(instance, inputs)
    sizes = {*_of_parameters(model), *(size for tensor in tensors_in(inputs) for size in tensor.shape)}
    found: dict[int, tuple[int, int] | None] = {}
    for place in places:
        leaf, dtype = _drawn_range(structure.leaves[place]), tensors_in(inputs)[place].dtype
        low, high, ends = int(leaf.low), int(leaf.high), torch.iinfo(dtype)
        whole = (ends.min if low < 0 else low, ends.max)
        if (low, high) == whole:
            continue

        def looks(number: int, place: int = place) -> list[torch.Size] | None:
            return _shapes(model, inputs, place, number, last=structure.leaves[place].ascending)

        shapes, most = looks(high), None if low < 0 else _largest(high, ends.max, looks, sizes)
        if most is None:
            quantity = dtype in NARROW and (low < LEAST_SIGNED if low < 0 else high >= ends.max // LEAST_PART)
            takes = quantity and shapes is not None and all(looks(each) == shapes for each in whole)
            found[place] = whole if takes else None
            size = _next_size(structure.leaves[place], inputs)
            if not takes and size is not None and shapes is not None and looks(size) == shapes:
                found[place] = low, size
        elif most > high:
            found[place] = low, most
    return found


def _next_size(leaf: Leaf, inputs: list[Any]) -> int | None:
    """Return the smallest size of an input's dimension above the tensor's one number, such as a cache's used length.

    None for masks, and where the number is such a size itself: then all of an input is used.
    """
    sizes = {size for tensor in tensors_in(inputs) for size in tensor.shape}
    if not leaf.is_one_number or leaf.high < LEAST_LENGTH or leaf.high in sizes:
        return None
    return min((size for size in sizes if size > leaf.high), default=None)


def _largest(high: int, end: int, looks: Callable[[int], list[torch.Size] | None], sizes: set[int]) -> int | None:
    """Return about the largest integer that the module accepts; None where it sets no limit.

    It is exact where it is the last index along one of these sizes.
    """
    shapes, taken = looks(high), high
    for number in _steps(high, end):
        if (now := looks(number)) != shapes:
            break
        taken = number
    else:
        return None
    if now is not None:  # the integer decides the size of the output
        return None
    between = sorted(each for each in {2 * taken + 1, *(size - 1 for size in sizes)} if taken < each < number)
    refused = bisect_left(between, True, key=lambda each: looks(each) != shapes)
    return between[refused - 1] if refused else taken


def _steps(high: int, end: int) -> list[int]:
    """Return numbers to try, smallest first; the last one of a dtype with few."""
    steps = [number for step in range(1, MOST_STEPS + 1) if (number := (high + 1) * GROWTH**step) <= min(end, LARGEST)]
    return [*steps, end] if end <= LARGEST else steps


def with_larger(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, larger: dict[int, tuple[int, int]]
) -> list[Any]:
    """Return the same inputs with integers in the whole range that the module accepts."""
    leaves = [
        replace(leaf, low=larger[place][0], high=larger[place][1], total=None)
        if place in larger
        else replace(leaf, kind="other")
        for place, leaf in enumerate(structure.leaves)
    ]
    return DISCRETE["other_integers"][0](inputs, generator, type(structure)(leaves))


def _stands_alone(number: int, leaf: Leaf, takes: Callable[[int], bool]) -> bool:
    neighbours = [each for each in (number - 1, number + 1) if not leaf.low <= each <= leaf.high]
    return takes(number) and not any(map(takes, neighbours))


def _shapes(
    model: nn.Module, inputs: list[Any], place: int, *numbers: int, last: bool = False
) -> list[torch.Size] | None:
    """Return the shapes of the outputs with these numbers in the first elements of that tensor, or with one in its last
    element, which keeps ascending order; None where no result is finite."""
    inputs = cloned(inputs)
    try:
        flat = tensors_in(inputs)[place].view(-1)
        for index, number in enumerate(numbers[: flat.numel()]):
            flat[-1 if last else index].fill_(number)
    except (RuntimeError, OverflowError, TypeError):  # the dtype has no such number
        return None
    return output_shapes(model, inputs)


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


def _of_parameters(model: nn.Module) -> Iterator[int]:
    """Yield the sizes of the parameters' dimensions."""
    for parameter in model.parameters():
        yield from parameter.shape


def with_special(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, special: dict[int, list[int]]
) -> list[Any]:
    """Return the same inputs with special integers at random positions."""
    fresh = {}
    for place, tensor in enumerate(tensors_in(inputs)):
        if place in special and tensor.numel():
            values = _spread(tensor, special[place], generator, distinct=structure.leaves[place].distinct)
            fresh[id(tensor)] = torch.empty_like(tensor).copy_(values)
    return list(pytree.tree_map(lambda leaf: fresh.get(id(leaf), leaf), list(inputs)))


def _spread(tensor: Tensor, numbers: Sequence[int], generator: torch.Generator, *, distinct: bool) -> Tensor:
    """Write these numbers at some positions; `distinct`: once in a row, and only where the row does not hold it yet."""
    device, count = generator.device, len(numbers)
    rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)
    # in turn: each is there, or the first ones where positions are few
    places = (rows.shape[0], 1) if distinct else rows.shape
    total = places[0] * places[1]
    dealt = torch.randperm(total, generator=generator, device=device).view(places)
    other = torch.tensor(numbers, dtype=tensor.dtype, device=device)[dealt % count].to(rows.device)
    if not distinct:
        chosen = (dealt < max(SHARE * total, min(count, total / 2))).to(rows.device)
    else:
        draws = torch.rand(rows.shape, generator=generator, device=device).to(rows.device)
        chosen = (draws == draws.amax(1, keepdim=True)) & ~(rows == other).any(1, keepdim=True)
    return torch.where(chosen, other, rows).reshape(tensor.shape)

"""Finds integers that a module treats in a special way (ignored targets, padding), and integers beyond the given range
that it accepts. (torch)

Random draws hardly ever contain special integers. The integers that may be special are those in the module's source,
in its attributes (also in lists, tuples, sets and dictionaries), in its integer buffers and among its arguments, the
sizes of its parameters, and neighbours of these (the last token of a vocabulary is its size minus one). Which of them
are used depends on the range of the given values:

- Within the range, any can simply be used.
- Outside the range, an integer is special if the module accepts it but neither of its neighbours, such as -100 of a
  cross-entropy. It is also special if it has a result of its own, while the next two integers further outside have the
  same result as each other. The index -1 (the last element of a list) is not special, and a kernel need not support it.
- An integer just outside the range is used if other draws may well reach it.
- An integer above the range is used if it is the last one that the module accepts.
- If the range begins above zero, the integer just below it, such as a length of zero, is used if the module accepts it
  and does not then index a tensor by a negative number.

A module may also compare the integers of one input with those of another one. Random draws from long ranges hardly ever
have an integer in common. So in one case integers of each input are copied into the others (`with_copied`).

Integers larger than any given one are tried as well (`larger_integers`). A module that fails for large integers, as for
an index out of bounds, shows by that which ones it accepts. If it accepts all, larger ones are used only in two cases.
If all integers of an input are one number (such as the length to which a cache is filled), it is increased to the next
size of an input. Integers of 8 or 16 bits that use a large part of the range of their dtype are quantities, and get the
whole range of the dtype.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge import syntax
from kforge.errors import ProblemError
from kforge.problems.inputs.discrete import DISCRETE, fixed_ends, rows_of, with_alike_rows
from kforge.problems.inputs.scalars import scalars_in
from kforge.problems.inputs.structure import first_of_places
from kforge.problems.inputs.trial import (
    makes_negative_indices,
    on_host,
    output_shapes_with,
    outputs_with,
    with_first,
)
from kforge.problems.likeness import outside_of_state
from kforge.problems.tensors import same, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from torch import nn

    from kforge.problems.inputs.structure import Leaf, Structure
    from kforge.problems.instance import Instance

USUAL = (-100, -1, 255)
"""Integers that modules commonly treat in a special way, such as -100 for ignored targets."""
MOST_TRIED, MOST_ABOVE, MOST_USED = 6, 4, 32
"""MOST_TRIED: most integers outside the range of an input that are tried as special ones, each by up to three calls.
MOST_ABOVE: most that are tried above the range: named by the module, or next to its largest one (a void class).
MOST_USED: most special integers that are used in a case. If there are more, some are left out at random (`_few`)."""
MOST_OF_ONE = 4096
"""Most integers of one list or buffer that are taken into account. Of a longer one, integers at even distances are."""
MOST_AT_THE_END, MOST_BELOW, REACH = 4, 24, 8.0
"""MOST_AT_THE_END: most integers above the range that are tried, each by up to two calls. MOST_BELOW: most below it,
all tried in one call. REACH: how far outside the range other draws may reach, as a multiple of the mean distance
between neighbouring integers of a draw."""
NARROW = (torch.int8, torch.uint8, torch.int16)
"""Integer dtypes of 8 and 16 bits, which often hold quantities."""
LEAST_SIGNED, LEAST_PART = -8, 4
"""Integers of 8 and 16 bits are quantities if one is below LEAST_SIGNED (the least signed number of four bits), or if
none is negative and one is at least the dtype's largest number divided by LEAST_PART. Class labels and codes of four
bits are usually smaller."""
INTEGER_DTYPES = (*NARROW, torch.int32, torch.int64)
"""Dtypes of the buffers that may hold special integers."""
SHARE = 0.25
"""Share of the elements of an integer input that are replaced by special integers."""
GROWTH, MOST_STEPS, LARGEST = 4, 6, 1 << 22
"""Larger integers are tried in at most MOST_STEPS steps, each GROWTH times the one before. None is above LARGEST,
because a module may make a tensor as long as the largest integer."""
LEAST_LENGTH = 2
"""If all integers of an input are one number below this, they are a mask or an identifier, not a length."""


def may_be_special(leaf: Leaf) -> bool:
    """Return whether single elements of an integer tensor may have other values. They may not if the integers are in
    order or always have the same sum, as offsets and lengths do."""
    if leaf.is_one_number:
        return True
    ordered = leaf.ascending or leaf.total is not None
    return leaf.kind == "integer" and leaf.low < leaf.high and leaf.varies and not ordered


def are_sorted_names(given: Tensor, leaf: Leaf) -> bool:
    """Return whether these integers are identifiers in ascending order. Ascending integers count as offsets instead if
    all rows begin with the smallest integer, or all end with the largest."""
    return leaf.kind == "integer" and leaf.ascending and leaf.varies and not any(fixed_ends(rows_of(given), leaf))


def _drawn_range(leaf: Leaf) -> Leaf:
    """Return the leaf with the range that other cases draw from. Integers that are one number go down to zero there."""
    return replace(leaf, low=0, high=max(leaf.high, 1), total=None) if leaf.is_one_number else leaf


def special_integers(instance: Instance, inputs: list[Any], structure: Structure) -> dict[int, list[int]]:
    """Return the special integers of each integer tensor, by the tensor's place in the structure. Raises ProblemError
    if the module cannot be constructed."""
    places = [place for place, leaf in enumerate(structure.leaves) if may_be_special(leaf)]
    first = first_of_places(structure, inputs)
    places = [place for place in places if place in first]
    if not places:
        return {}
    model, inputs = on_host(instance, inputs)
    named = sorted({*_of_source(instance.problem.source), *_of_attributes(model)})
    bases = sorted({*named, *_of_parameters(model)})
    named = list(dict.fromkeys([*named, *_of_containers(model)]))
    current = [*_of_scalars(inputs), *integers_of_buffers(model)]
    found = {}
    for place in places:
        leaf, count = _drawn_range(structure.leaves[place]), tensors_in(inputs)[first[place]].numel()
        rare = [base + step for base in bases for step in (1, 0, -1)] if leaf.high - leaf.low > count else []
        every = (*named, *reversed(rare), *current)
        within = dict.fromkeys(each for each in every if leaf.low <= each <= leaf.high)
        if structure.leaves[place].is_one_number:  # its range is short, and other cases draw from all of it
            rare, within = [], {}
        beyond = dict.fromkeys([*USUAL, *(number for number in named if number < 0)])
        tried = [number for number in beyond if not leaf.low <= number <= leaf.high][:MOST_TRIED]
        above = {int(leaf.high) + 1, *(number for number in named if number > leaf.high)} - set(tried)
        above_in_order = sorted(above)  # the largest one too: small ones are often sizes of layers, not codes
        tried += above_in_order[: MOST_ABOVE - 1] + above_in_order[MOST_ABOVE - 1 :][-1:]

        def accepts(*numbers: int, place: int = first[place]) -> bool:
            return output_shapes_with(model, inputs, place, *numbers) is not None

        def results(number: int, place: int = first[place]) -> list[Tensor] | None:
            return outputs_with(model, inputs, place, number)

        special = [
            number for number in tried if _stands_alone(number, leaf, accepts) or _is_singled_out(number, leaf, results)
        ]
        if rare:
            special += [number for number in _at_the_ends(bases, leaf, count, accepts) if number not in special]
        below = below_range(structure.leaves[place])
        if below is not None and below not in special and accepts(below):
            with_below = with_first(inputs, first[place], below)
            special += [] if with_below is None or makes_negative_indices(model, with_below) else [below]
        if special or within:
            found[place] = [*special, *within]
    return found


def below_range(leaf: Leaf) -> int | None:
    """Return the integer just below the range of an integer tensor; None if it would be negative, or if the integers
    are one number."""
    return int(leaf.low) - 1 if not leaf.is_one_number and leaf.low >= 1 else None


def without_below(special: dict[int, list[int]], structure: Structure) -> dict[int, list[int]]:
    """Return the special integers without those just below the range of their tensor."""
    leaves = structure.leaves
    kept = {place: [each for each in special[place] if each != below_range(leaves[place])] for place in special}
    return {place: numbers for place, numbers in kept.items() if numbers}


def _at_the_ends(bases: Sequence[int], leaf: Leaf, count: int, accepts: Callable[..., bool]) -> list[int]:
    """Return the integers outside the range that the module accepts, and that other draws may reach or that are the
    last ones it accepts.

    Only `bases` and their neighbours are tried. `count` is the number of elements of the tensor.
    """
    reach = REACH * (leaf.high - leaf.low) / max(count, 1)
    least = leaf.low - reach if leaf.low < 0 else max(0, leaf.low - reach)
    below = sorted({base + step for base in bases for step in (-1, 0, 1) if least <= base + step < leaf.low})
    below = below[: min(MOST_BELOW, count)]
    above = [base - 1 for base in bases if base - 1 > leaf.high][:MOST_AT_THE_END]
    ends = [number for number in above if accepts(number) and (number <= leaf.high + reach or not accepts(number + 1))]
    return [*ends, *(below if below and accepts(*below) else [])]


def larger_integers(instance: Instance, inputs: list[Any], structure: Structure) -> dict[int, tuple[int, int] | None]:
    """Return the range of the integers that the module accepts in each integer tensor, if it exceeds the given one.
    None if no limit was found.

    Tensors whose integers are already as large as the module accepts are left out. Without a limit no larger integer is
    used, because nothing shows what it would mean. There are two exceptions: quantities of 8 or 16 bits get the range
    of their dtype, and integers that are one number grow to the next size of an input. Raises ProblemError if the
    module cannot be constructed.
    """
    first = first_of_places(structure, inputs)
    both = [(place, structure.leaves[place], tensors_in(inputs)[number]) for place, number in first.items()]
    places = [place for place, leaf, given in both if may_be_special(leaf) or are_sorted_names(given, leaf)]
    if not places:
        return {}
    model, inputs = on_host(instance, inputs)
    sizes = {*_of_parameters(model), *(size for tensor in tensors_in(inputs) for size in tensor.shape)}
    found: dict[int, tuple[int, int] | None] = {}
    for place in places:
        leaf, dtype = _drawn_range(structure.leaves[place]), tensors_in(inputs)[first[place]].dtype
        low, high, ends = int(leaf.low), int(leaf.high), torch.iinfo(dtype)
        whole = (ends.min if low < 0 else low, ends.max)
        if (low, high) == whole:
            continue

        def shapes_with(number: int, place: int = place) -> list[torch.Size] | None:
            return output_shapes_with(model, inputs, first[place], number, last=structure.leaves[place].ascending)

        shapes, most = shapes_with(high), None if low < 0 else _largest(high, ends.max, shapes_with, sizes)
        if most is None:
            quantity = dtype in NARROW and (low < LEAST_SIGNED if low < 0 else high >= ends.max // LEAST_PART)
            accepts_whole = quantity and shapes is not None and all(shapes_with(each) == shapes for each in whole)
            found[place] = whole if accepts_whole else None
            size = _next_size(structure.leaves[place], inputs)
            if not accepts_whole and size is not None and shapes is not None and shapes_with(size) == shapes:
                found[place] = low, size
        elif most > high:
            found[place] = low, most
    return found


def _next_size(leaf: Leaf, inputs: list[Any]) -> int | None:
    """Return the smallest size of a dimension of any input that is larger than the tensor's one number, such as the
    length of a cache.

    Returns None for integers that are not one number, for masks and identifiers (numbers below LEAST_LENGTH), and if
    the number is itself such a size.
    """
    sizes = {size for tensor in tensors_in(inputs) for size in tensor.shape}
    if not leaf.is_one_number or leaf.high < LEAST_LENGTH or leaf.high in sizes:
        return None
    return min((size for size in sizes if size > leaf.high), default=None)


def _largest(high: int, end: int, shapes_with: Callable[[int], list[torch.Size] | None], sizes: set[int]) -> int | None:
    """Return about the largest integer that the module accepts; None if it sets no limit, or if a larger integer
    changes the shape of an output.

    `shapes_with` returns the shapes of the outputs for a number; None if the module does not accept it. The result is
    exact if it is the last index of one of `sizes`.
    """
    shapes, accepted = shapes_with(high), high
    for number in _steps(high, end):
        if (now := shapes_with(number)) != shapes:
            break
        accepted = number
    else:
        return None
    if now is not None:  # the integer decides the size of the output
        return None
    between = sorted(each for each in {2 * accepted + 1, *(size - 1 for size in sizes)} if accepted < each < number)
    refused = bisect_left(between, True, key=lambda each: shapes_with(each) != shapes)
    return between[refused - 1] if refused else accepted


def _steps(high: int, end: int) -> list[int]:
    """Return the numbers to try, in ascending order. `end`, the largest number of the dtype, is one of them unless it
    is above LARGEST."""
    steps = [number for step in range(1, MOST_STEPS + 1) if (number := (high + 1) * GROWTH**step) <= min(end, LARGEST)]
    return [*steps, end] if end <= LARGEST else steps


def with_larger(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, larger: dict[int, tuple[int, int]]
) -> list[Any]:
    """Return the inputs with other integers in the tensors of `larger`, drawn from the range that it gives by place."""
    leaves = [
        replace(leaf, low=larger[place][0], high=larger[place][1], total=None)
        if place in larger
        else replace(leaf, kind="other")
        for place, leaf in enumerate(structure.leaves)
    ]
    return DISCRETE["other_integers"][0](inputs, generator, structure.with_leaves(leaves))


def _stands_alone(number: int, leaf: Leaf, accepts: Callable[[int], bool]) -> bool:
    """Return whether the module accepts a number, but neither of its neighbours outside the range."""
    neighbours = [each for each in (number - 1, number + 1) if not leaf.low <= each <= leaf.high]
    return accepts(number) and not any(map(accepts, neighbours))


def _is_singled_out(number: int, leaf: Leaf, results: Callable[[int], list[Tensor] | None]) -> bool:
    """Return whether a number outside the range has a result of its own, while the next two numbers further outside
    have the same result as each other. This is false for negative indices: each has a result of its own."""
    step = -1 if number < leaf.low else 1
    found, *others = (results(each) for each in (number, number + step, number + 2 * step))
    if found is None or others[0] is None or others[1] is None:
        return False
    return same(others[0], others[1]) and not same(found, others[0])


def _of_source(source: str) -> Iterator[int]:
    """Yield the integers in the problem's source. Raises ProblemError if it cannot be parsed."""
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
    """Yield the integers among the attributes of a module and its submodules."""
    for module in model.modules():
        yield from (value for value in vars(module).values() if type(value) is int)


def _of_containers(model: nn.Module) -> list[int]:
    """Return the integers in lists, tuples, sets and dictionaries among the attributes of a module and its
    submodules."""
    held = [value for module in model.modules() for value in vars(module).values()]
    found = [each for value in held if type(value) is not int for each in _integers_in(value)]
    return sorted(dict.fromkeys(found))


def _integers_in(value: Any, depth: int = 2) -> list[int]:
    """Return the integers in nested lists, tuples, sets, ranges and dictionaries (keys and values)."""
    if type(value) is int:
        return [value]
    if not isinstance(value, list | tuple | set | frozenset | range | dict) or not depth:
        return []
    members = [*value, *value.values()] if isinstance(value, dict) else list(value)
    step = -(-len(members) // MOST_OF_ONE) or 1
    return [number for member in members[::step] for number in _integers_in(member, depth - 1)]


def _of_scalars(inputs: Sequence[Any]) -> list[int]:
    """Return the Python integers among the arguments of a call."""
    return [value for value in scalars_in(inputs) if type(value) is int]


def integers_of_buffers(model: nn.Module) -> list[int]:
    """Return the integers in the integer tensors of a module: buffers, parameters and plain attributes. Of long ones,
    only some are returned (MOST_OF_ONE)."""
    found: list[int] = []
    for buffer in (*model.buffers(), *model.parameters(), *_outside_of_state(model)):
        if buffer.dtype in INTEGER_DTYPES and buffer.numel():
            flat = buffer.detach().reshape(-1)
            found += flat[:: -(-flat.numel() // MOST_OF_ONE)].tolist()
    return list(dict.fromkeys(found))


def _outside_of_state(model: nn.Module) -> list[Tensor]:
    """Return the tensors and the integer arrays among the plain attributes of a module and its submodules."""
    held = list(outside_of_state(model))
    arrays = (each for each in held if isinstance(each, np.ndarray) and each.dtype.kind in "iu")
    # torch takes neither negative strides nor the byte order of another machine
    native = (np.ascontiguousarray(each, each.dtype.newbyteorder("=")) for each in arrays)
    return [*(each for each in held if isinstance(each, Tensor)), *map(torch.from_numpy, native)]


def _of_parameters(model: nn.Module) -> Iterator[int]:
    """Yield the sizes of all dimensions of the parameters."""
    for parameter in model.parameters():
        yield from parameter.shape


def with_special(
    inputs: Sequence[Any],
    generator: torch.Generator,
    structure: Structure,
    special: dict[int, list[int]],
    current: Collection[int] = (),
    *,
    rows: bool = False,
) -> list[Any]:
    """Return the inputs with special integers at random positions and, with `rows`, in a few whole rows.

    `special` has the special integers of each tensor, by its place. `current` are integers of the module's present
    state. Those of them, and of the Python integers among the inputs, that are within a tensor's range are used as
    well.
    """
    fresh = {}
    named = [*current, *_of_scalars(inputs)]
    for place, tensor in zip(structure.places_of(inputs), tensors_in(inputs), strict=True):
        if place is not None and place in special and tensor.numel():
            leaf = structure.leaves[place]
            numbers = _few(
                [*special[place], *(each for each in named if leaf.low <= each <= leaf.high)], leaf, generator
            )
            values = _spread(tensor, numbers, generator, distinct=leaf.distinct)
            if rows and not leaf.distinct:
                choices = torch.tensor(numbers, dtype=values.dtype, device=values.device)
                values = with_alike_rows(values, choices, generator)
            fresh[id(tensor)] = torch.empty_like(tensor).copy_(values)
    return list(pytree.tree_map(lambda leaf: fresh.get(id(leaf), leaf), list(inputs)))


def _few(numbers: Sequence[int], leaf: Leaf, generator: torch.Generator) -> list[int]:
    """Return at most MOST_USED of these integers: those outside the range of the tensor first, then random other
    ones."""
    every = list(dict.fromkeys(numbers))
    if len(every) <= MOST_USED:
        return every
    outside = [each for each in every if not leaf.low <= each <= leaf.high][:MOST_USED]
    within = [each for each in every if leaf.low <= each <= leaf.high]
    order = torch.randperm(len(within), generator=generator, device=generator.device).tolist()
    return [*outside, *(within[index] for index in order)][:MOST_USED]


def comparable(structure: Structure) -> dict[int, list[int]]:
    """Return for the place of each integer tensor the places of other ones whose ranges overlap with its own."""
    places = [
        place
        for place, leaf in enumerate(structure.leaves)
        if may_be_special(leaf) and not leaf.is_one_number and leaf.low >= 0
    ]
    leaves = structure.leaves

    def overlap(one: int, other: int) -> bool:
        low, high = max(leaves[one].low, leaves[other].low), min(leaves[one].high, leaves[other].high)
        return one != other and low <= high

    found = {one: [other for other in places if overlap(one, other)] for one in places}
    return {one: others for one, others in found.items() if others}


def with_copied(inputs: Sequence[Any], generator: torch.Generator, structure: Structure) -> list[Any]:
    """Return the inputs with some integers of each tensor copied from another one, usually of the same row."""
    tensors, first, fresh = tensors_in(inputs), first_of_places(structure, inputs), {}
    for place, possible in comparable(structure).items():
        others = [other for other in possible if other in first]
        if place not in first or not others:
            continue
        tensor, leaf = tensors[first[place]], structure.leaves[place]
        chosen = int(torch.randint(len(others), (), generator=generator, device=generator.device))
        source = tensors[first[others[chosen]]]
        values = _of_same_rows(source, tensor, generator).to(tensor.device)
        ends = tensor.aminmax()
        low, high = min(int(leaf.low), int(ends.min)), max(int(leaf.high), int(ends.max))
        draws = torch.rand(tensor.shape, generator=generator, device=generator.device).to(tensor.device)
        taken = (values >= low) & (values <= high)
        if leaf.distinct and tensor.dim():
            taken &= ~(rows_of(tensor)[:, :, None] == rows_of(values)[:, None, :]).any(1).reshape(tensor.shape)
            draws = draws.masked_fill(~taken, -1)
            taken &= draws == draws.amax(-1, keepdim=True)
        else:
            taken &= draws < SHARE
        fresh[id(tensor)] = torch.empty_like(tensor).copy_(torch.where(taken, values.to(tensor.dtype), tensor))
    return list(pytree.tree_map(lambda leaf: fresh.get(id(leaf), leaf), list(inputs)))


def _of_same_rows(source: Tensor, like: Tensor, generator: torch.Generator) -> Tensor:
    """Return random integers of `source` in the shape of `like`.

    If both tensors have as many rows, each integer comes from the same row. If they have the same shape, half of the
    integers come from the same position.
    """
    device = generator.device
    rows = source.shape[0] if source.dim() and like.dim() and source.shape[0] == like.shape[0] else 1
    flat = source.reshape(rows, -1)
    picked = torch.randint(flat.shape[1], (rows, like.numel() // rows), generator=generator, device=device)
    values = flat.gather(1, picked.to(flat.device)).reshape(like.shape)
    if source.shape != like.shape:
        return values
    same = torch.rand(like.shape, generator=generator, device=device).to(source.device) < 0.5
    return torch.where(same, source, values)


def _spread(tensor: Tensor, numbers: Sequence[int], generator: torch.Generator, *, distinct: bool) -> Tensor:
    """Return the tensor with these numbers at some positions.

    With `distinct`, a number is written once in a row, and only if the row does not contain it.
    """
    device, count = generator.device, len(numbers)
    rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)
    # the numbers take turns, so that each occurs; with few positions, only the first numbers occur
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

"""Draws integers, masks and positions of zeros that differ from the given ones, as far as these are data and not
structure. (torch)

Everything that is true of an integer tensor in all draws is kept: its range, ascending order with fixed ends (offsets),
distinct values (permutations), and a constant sum (lengths). Booleans get other densities; rows with exactly one true
element keep exactly one. Zeros and infinities of a floating-point tensor move to other positions, if they vary with the
seed. Integers that are one number throughout (a mask of ones, full lengths) become any numbers down to zero, and zeros
become zeros and ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge.problems.inputs.distributions import in_memory, overlaps, unexpanded
from kforge.problems.inputs.structure import kind_of, special_places

if TYPE_CHECKING:
    from kforge.problems.inputs.structure import Leaf, Structure


UNIFORM_MASKS = "uniform_masks"
"""Name of the case in which masks are throughout what they mostly are."""


class Variation(Protocol):
    """Makes new inputs from given ones, and from what several draws of them have in common."""

    def __call__(self, inputs: Sequence[Any], generator: torch.Generator, structure: Structure) -> list[Any]: ...


_Vary = Callable[[Tensor, "Leaf", torch.Generator], Tensor]
"""A function that returns other values for one tensor, given the facts that are known about it."""
MOST_SAMPLED = 1 << 24
"""Most random numbers that are sorted to draw distinct values. Longer ranges are drawn in parts."""
DENSITIES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Shares of true elements in the rows of random masks."""
EMPTY_SHARE = 0.125
"""Share of the rows of a mask of infinities that have no finite element, in the first variation of `moved_zeros`."""
SHARE_OF_ROWS, LEAST_ROWS = 1 / 16, 4
"""SHARE_OF_ROWS: share of the rows of an input that one number fills. LEAST_ROWS: least number of rows for that."""
BLOCK = 8
"""Elements of a vector that get the same kind of values in `_skewed_integers`."""


def _other_integers(given: Tensor, leaf: Leaf, generator: torch.Generator) -> Tensor:
    """Return random integers within the range that keep what all draws have in common."""
    if leaf.kind == "boolean":
        return _shuffled(given, leaf, generator) if leaf.one_true else random_mask(given, generator)
    if leaf.is_one_number:
        return _integers(0, max(int(leaf.high), 1), given.shape, generator)
    if leaf.total is not None:
        return _shuffled(given, leaf, generator)
    rows, low, high = rows_of(given), int(leaf.low), int(leaf.high)
    if not leaf.distinct:
        return _in_order(_integers(low, high, rows.shape, generator), rows, leaf).reshape(given.shape)
    first, last = fixed_ends(rows, leaf)
    chosen = _distinct(low + first, high - last, (rows.shape[0], rows.shape[1] - first - last), generator)
    values = torch.cat([rows[:, :first], chosen.to(given.device), rows[:, rows.shape[1] - last :]], 1)
    return (values.sort(1).values if leaf.ascending else values).reshape(given.shape)


def _distinct(low: int, high: int, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Return rows of distinct integers from `low` to `high` in random order.

    From a long range, each integer is drawn from its own part of the range, and the highest one is included.
    """
    (rows, count), span, device = shape, high - low + 1, generator.device
    if rows * span <= MOST_SAMPLED:
        return torch.rand(rows, span, generator=generator, device=device).argsort(1)[:, :count] + low
    values = torch.arange(count, device=device) * span // count + _integers(0, span // count - 1, shape, generator)
    values[0, -1] = span - 1
    order = torch.rand(shape, generator=generator, device=device).argsort(1)
    return values.gather(1, order) + low


def _skewed_integers(given: Tensor, leaf: Leaf, generator: torch.Generator) -> Tensor:
    """Return rows of one value, rows of the two extreme values and rows as given, at random positions."""
    if leaf.one_true or leaf.distinct or (leaf.total is not None and not leaf.is_one_number):
        return _shuffled(given, leaf, generator)
    rows = rows_of(given)
    if leaf.is_one_number:
        leaf = replace(leaf, low=0, high=max(leaf.high, 1))
    low, high = (0, 1) if leaf.kind == "boolean" else (int(leaf.low), int(leaf.high))
    constant = _integers(low, high, (rows.shape[0], 1), generator)
    extremes = low + (high - low) * _integers(0, 1, rows.shape, generator)
    # each row has one kind of values; in a vector each block has one
    blocks = (rows.shape[0], 1) if rows.shape[0] > 1 else (1, -(-rows.shape[1] // BLOCK))
    kinds = _integers(0, 2, blocks, generator)
    kinds = kinds if rows.shape[0] > 1 else kinds.repeat_interleave(BLOCK, 1)[:, : rows.shape[1]]
    constant, extremes, kinds = (each.to(given.device) for each in (constant, extremes, kinds))
    values = torch.where(kinds == 0, constant, torch.where(kinds == 1, extremes, rows.to(torch.int64)))
    if given.dim() >= 3:
        ends = torch.tensor([low, high], device=given.device)
        values = rows_of(with_alike_rows(values.reshape(given.shape), ends, generator))
    return _in_order(values, rows, leaf).reshape(given.shape)


def _all_alike(given: Tensor, leaf: Leaf, generator: torch.Generator, *, rarer: bool = True) -> Tensor:
    """Return a tensor of one integer, or a mask that is true or false throughout, such as a batch without any object.

    With `rarer`, a mask is filled with the value that fewer of its elements have, otherwise with the other one.
    """
    if leaf.one_true or leaf.distinct or leaf.ascending or leaf.total is not None or not given.numel():
        return given
    if leaf.kind == "boolean":
        is_mostly_true = bool(given.double().mean() >= 0.5)
        return torch.full_like(given, not is_mostly_true if rarer else is_mostly_true)
    number = int(_integers(int(leaf.low), int(leaf.high), (), generator))
    return torch.full_like(given, number)


def _integers(low: int, high: int, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Return random integers from `low` to `high`, both included."""
    return torch.randint(low, high + 1, tuple(shape), generator=generator, device=generator.device)


def _shuffled(given: Tensor, leaf: Leaf, generator: torch.Generator) -> Tensor:
    """Return the same values in another order: within rows, or in the whole tensor if only the sum is structure."""
    if leaf.ascending:
        return given
    rows = rows_of(given)
    flat = rows.reshape(1, -1) if leaf.total is not None else rows
    keys = torch.rand(flat.shape, generator=generator, device=generator.device).to(given.device)
    return flat.gather(1, keys.argsort(1)).reshape(given.shape)


def _few_flipped(given: Tensor, leaf: Leaf, generator: torch.Generator, *, keep_first: bool = False) -> Tensor:
    """Return a mask with a few changed elements. Other integers are shuffled.

    A row with a true element keeps at least one. With `keep_first`, no element of the first column changes: a module
    may need it, such as attention with a causal mask, in which the first query sees nothing else.
    """
    if leaf.is_one_number and leaf.high > 1:  # lengths, of which none may be zero
        return _integers(1, int(leaf.high), given.shape, generator)
    if (leaf.kind == "integer" and not leaf.is_one_number) or leaf.one_true:
        return _shuffled(given, leaf, generator)
    flipped = torch.rand(given.shape, generator=generator, device=generator.device).to(given.device) < DENSITIES[0]
    if not (given.dim() and given.shape[-1] > 1):
        return given ^ flipped.to(given.dtype)
    if keep_first:
        flipped[..., 0] = False
    fresh = given ^ flipped.to(given.dtype)
    emptied = (given != 0).any(-1, keepdim=True) & ~(fresh != 0).any(-1, keepdim=True)
    return torch.where(emptied, given, fresh)


def random_mask(given: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random mask in which every row has its own share of true elements."""
    rows = rows_of(given)
    chosen = torch.randint(len(DENSITIES), (rows.shape[0], 1), generator=generator, device=generator.device)
    density = torch.tensor(DENSITIES, device=generator.device)[chosen]
    drawn = torch.rand(rows.shape, generator=generator, device=generator.device) < density
    return drawn.to(given.device).reshape(given.shape)


def _in_order(values: Tensor, given: Tensor, leaf: Leaf) -> Tensor:
    """Return the values sorted in rows if the given rows are ascending, with the same ends if those never change."""
    values = values.to(given.device)
    if leaf.ascending:
        values = values.sort(1).values
        first, last = fixed_ends(given, leaf)
        values[:, :first] = given[:, :first]
        values[:, values.shape[1] - last :] = given[:, values.shape[1] - last :]
    return values


def fixed_ends(rows: Tensor, leaf: Leaf) -> tuple[int, int]:
    """Return whether ascending rows all begin with the smallest value, and whether they all end with the largest, each
    as 1 or 0."""
    if not leaf.ascending:
        return 0, 0
    return int(bool((rows[:, 0] == leaf.low).all())), int(bool((rows[:, -1] == leaf.high).all()))


def rows_of(given: Tensor) -> Tensor:
    """Return the tensor as a matrix, whose rows are the tensor's last dimension."""
    return given.reshape(-1, given.shape[-1]) if given.dim() else given.reshape(1, 1)


def with_alike_rows(values: Tensor, choices: Tensor, generator: torch.Generator) -> Tensor:
    """Fill a few rows, at least one, each with one of these values: a document of padding only.

    In tensors of three or more dimensions, also fill two whole samples, with the first value and with the last: an
    image without any object. With fewer than LEAST_ROWS rows, the tensor is returned unchanged; with fewer samples than
    that, no whole sample is filled.
    """
    rows, device = rows_of(values), generator.device
    count = rows.shape[0]
    if count < LEAST_ROWS:
        return values
    chosen = torch.rand(count, generator=generator, device=device) < SHARE_OF_ROWS
    chosen[int(torch.randint(count, (), generator=generator, device=device))] = True
    picked = torch.randint(choices.numel(), (count,), generator=generator, device=device)
    if values.dim() >= 3 and values.shape[0] >= LEAST_ROWS:
        one, other = torch.randperm(values.shape[0], generator=generator, device=device)[:2].tolist()
        for sample, choice in ((one, 0), (other, choices.numel() - 1)):
            chosen.view(values.shape[0], -1)[sample] = True
            picked.view(values.shape[0], -1)[sample] = choice
    fill = choices[picked.to(choices.device)].view(-1, 1).to(rows.device)
    return torch.where(chosen.view(-1, 1).to(rows.device), fill, rows).reshape(values.shape)


def _moved_zeros(given: Tensor, leaf: Leaf, generator: torch.Generator) -> Tensor:
    """Return the tensor with its zeros, or its infinities, at other positions and in another density."""
    if not bool(given.isfinite().all()):
        return _moved_infinities(given, leaf, generator)
    rows, special = rows_of(given), rows_of(special_places(given))
    others = rows[~special]
    if not others.numel():
        return given
    chosen = torch.randint(others.numel(), rows.shape, generator=generator, device=generator.device)
    dense = torch.where(special, others[chosen.to(given.device)], rows)
    return dense.masked_fill(random_mask(rows, generator), 0).reshape(given.shape)


def _moved_infinities(given: Tensor, leaf: Leaf, generator: torch.Generator, *, some_finite: bool = False) -> Tensor:
    """Return the tensor with its infinities and NaN at other positions. Each row has its own density of them.

    With `some_finite`, each row has at least one finite element, which a softmax needs.
    """
    del leaf
    rows, odd = rows_of(given), rows_of(~given.isfinite())
    finite, others = rows[~odd], rows[odd]
    if not (finite.numel() and others.numel()):
        return given
    device, shape = generator.device, rows.shape
    chosen, taken = (
        torch.randint(each.numel(), shape, generator=generator, device=device) for each in (finite, others)
    )
    masked = random_mask(rows, generator)
    if some_finite:
        first = torch.randint(shape[1], (shape[0], 1), generator=generator, device=device).to(given.device)
        masked.scatter_(1, first, value=False)
    dense = torch.where(odd, finite[chosen.to(given.device)], rows)
    return torch.where(masked, others[taken.to(given.device)], dense).reshape(given.shape)


def _rows_of_infinities(given: Tensor, leaf: Leaf, generator: torch.Generator) -> Tensor:
    """Return the tensor with its infinities at other positions, and with some rows that have no finite element.

    Each of these rows has one of the given values throughout, such as minus infinity. Of a tensor without infinities,
    the zeros move.
    """
    odd = rows_of(~given.isfinite())
    if bool(odd.all()) or not bool(odd.any()):
        return _moved_zeros(given, leaf, generator)
    rows, device = rows_of(_moved_infinities(given, leaf, generator)), generator.device
    count, others = rows.shape[0], rows_of(given)[odd]
    taken = torch.randint(others.numel(), (count, 1), generator=generator, device=device).to(given.device)
    chosen = torch.rand(count, 1, generator=generator, device=device) < EMPTY_SHARE
    chosen[int(torch.randint(count, (), generator=generator, device=device))] = True
    return torch.where(chosen.to(given.device), others[taken], rows).reshape(given.shape)


def _shuffled_infinities(given: Tensor, leaf: Leaf, generator: torch.Generator) -> Tensor:
    """Return the tensor with each row in another order, if it has infinities or NaN; otherwise the given tensor."""
    return given if bool(given.isfinite().all()) else _shuffled(given, replace(leaf, ascending=False), generator)


def varying(vary: _Vary, applies: Callable[[Leaf], bool]) -> Variation:
    """Return a variation that changes the tensors for whose facts `applies` returns True. Strides stay the same, and a
    tensor that is given twice stays one tensor."""

    def variation(inputs: Sequence[Any], generator: torch.Generator, structure: Structure) -> list[Any]:
        fresh: dict[int, Tensor] = {}
        leaves = iter(structure.leaves_of(inputs))

        def replaced(given: Any) -> Any:
            if not isinstance(given, Tensor):
                return given
            leaf = next(leaves, None)
            if leaf is None or not applies(leaf) or not given.numel() or kind_of(given) != leaf.kind:
                return given
            if id(given) not in fresh:
                known = _with_these(leaf, given)
                fresh[id(given)] = _changed(given, lambda values: vary(values, known, generator))
            return fresh[id(given)]

        return list(pytree.tree_map(replaced, list(inputs)))

    return variation


def _changed(given: Tensor, vary: Callable[[Tensor], Tensor]) -> Tensor:
    """Return a changed tensor with the same strides. An expanded dimension is changed once. Of windows that overlap in
    memory, the memory is changed."""
    kernel = unexpanded(given)
    if overlaps(kernel):
        return in_memory(given, lambda vector: torch.empty_like(vector).copy_(vary(vector)))
    values = torch.empty_strided(kernel.shape, given.stride(), dtype=given.dtype, device=given.device)
    return values.copy_(vary(kernel)).expand(given.shape)


def _with_these(leaf: Leaf, given: Tensor) -> Leaf:
    """Return the facts about an integer tensor, with the range extended to the values of this draw."""
    if leaf.kind != "integer" or leaf.is_one_number:
        return leaf
    low, high = (int(each) for each in given.aminmax())
    return replace(leaf, low=min(leaf.low, low), high=max(leaf.high, high))


def _is_varied(leaf: Leaf) -> bool:
    return leaf.varies


def is_mask(leaf: Leaf) -> bool:
    """Return whether single elements of a tensor may be flipped: booleans, and integers that are one number
    throughout."""
    return leaf.varies and (leaf.is_one_number or is_free_mask(leaf))


def is_free_mask(leaf: Leaf) -> bool:
    """Return whether a tensor has booleans that may be true or false each by itself."""
    return leaf.varies and leaf.kind == "boolean" and not leaf.one_true


def _moves(leaf: Leaf) -> bool:
    return leaf.kind == "floating" and leaf.special and not leaf.fixed_places


DISCRETE: Mapping[str, tuple[Variation, ...]] = MappingProxyType(
    {
        "other_integers": (
            varying(_other_integers, _is_varied),
            varying(_few_flipped, _is_varied),
            varying(partial(_few_flipped, keep_first=True), _is_varied),
        ),
        "skewed_integers": (varying(_skewed_integers, _is_varied), varying(_shuffled, _is_varied)),
        "all_alike": (varying(_all_alike, _is_varied), varying(partial(_all_alike, rarer=False), _is_varied)),
        UNIFORM_MASKS: (varying(partial(_all_alike, rarer=False), is_free_mask),),
        "flipped_masks": (varying(_few_flipped, is_mask), varying(partial(_few_flipped, keep_first=True), is_mask)),
        "moved_zeros": (
            varying(_rows_of_infinities, _moves),
            varying(_moved_zeros, _moves),
            varying(partial(_moved_infinities, some_finite=True), _moves),
            varying(_shuffled_infinities, _moves),
        ),
    }
)
"""For each case, its variation, followed by milder ones that are tried if the reference does not accept it."""
shuffled = varying(_shuffled, lambda leaf: leaf.kind in ("floating", "integer"))
"""Returns every floating-point and integer tensor with its rows in another order, unless they are ascending."""

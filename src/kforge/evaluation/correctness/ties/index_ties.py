"""Judges outputs of indices (argmax, top-k, sort) by the scores from which the reference chose them. (torch)

The scores often exist only inside a module, such as products of which the largest is chosen. So the reference is run
again, in double precision and at its own dtype, and every operator that chooses is recorded with its scores. An index
output is matched with the results of these operators: it is a view of one, or has equal values. A program may choose
other positions than torch if their scores are equally good: equal, or so close that rounding decides. If torch chooses
distinct positions, the program must do so, too. If the order of equal scores is defined (a stable sort, the first of
the largest integers), the program must keep that order.

Other outputs may follow from such choices, such as elements that are looked up at the chosen positions. They are right
if the reference gives them when it makes the choices that the program returns (`own_choices.py`), or when it chooses
others among equal scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.comparison.comparison import Truth, ordered_like
from kforge.evaluation.constants import ERROR_FACTOR, FLOORS, LEAST_SCALE, TIE_ORDERS
from kforge.evaluation.reference.choices import (
    FIRST,
    LAST,
    RUNNING,
    OtherTies,
    has_ties,
)
from kforge.problems.tensors import same

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kforge.evaluation.reference.choices import Choice, RecordedIndices
    from kforge.evaluation.reference.reference import Reference

LEAST_NEIGHBOURS, MOST_NEIGHBOURS = 4, 16
"""Fewest and most neighbouring scores, on either side in the ranking, that are used to estimate the rounding error of a
score."""
MOST_ALONE = 4
"""Most choices of a call whose orders among equal scores are also varied one at a time. Each of them takes up to four
more runs of the reference."""


@dataclass(frozen=True)
class Chosen:
    """The choice (call of argmax, sort, …) from which an output of indices comes."""

    number: int
    """Number of the choice among all choices in the call of the module."""
    choice: Choice
    places: torch.Tensor
    """For each element of the output, its position in the flattened `Choice.index`."""
    output: torch.Tensor
    """The index output of the reference. The module may have changed it after the choice."""


def chosen_by(record: RecordedIndices, leaf: int, exact: torch.Tensor) -> Chosen | None:
    """Return the choice from which an index output came; None if no recorded choice fits.

    It is the choice with whose result the output shares memory, otherwise the last one with equal values.
    """
    output = record.leaves[leaf]
    if not torch.equal(output, exact):
        return None
    numbers = range(len(record.choices) - 1, -1, -1)
    in_memory = (number for number in numbers if _shares_memory(output, record.choices[number].returned))
    for number in (*in_memory, *numbers):
        chosen = chosen_from(record, leaf, number)
        if chosen is not None:
            return chosen
    return None


def chosen_from(record: RecordedIndices, leaf: int, number: int) -> Chosen | None:
    """Return the choice of that number with the place of an index output in it; None if the output is not from it."""
    output, choice = record.leaves[leaf], record.choices[number]
    places = _places_in(output, choice.returned)
    if places is None:
        return None
    rows = choice.moved(torch.arange(choice.returned.numel(), device=output.device).view(choice.returned.shape))
    position = torch.empty(choice.returned.numel(), dtype=torch.long, device=output.device)
    position[rows.reshape(-1)] = torch.arange(rows.numel(), device=output.device)
    return Chosen(number, choice, position[places], output)


def _shares_memory(leaf: torch.Tensor, returned: torch.Tensor) -> bool:
    return leaf.dtype == returned.dtype and leaf.untyped_storage().data_ptr() == returned.untyped_storage().data_ptr()


def _places_in(leaf: torch.Tensor, returned: torch.Tensor) -> torch.Tensor | None:
    """Return for each element of an output its position in an operator's result: by memory, or by equal values. None if
    it does not come from there."""
    if _shares_memory(leaf, returned) and returned.is_contiguous() and not returned.storage_offset():
        count = torch.arange(returned.untyped_storage().nbytes() // returned.itemsize, device=leaf.device)
        return count.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())
    if leaf.numel() == returned.numel() and torch.equal(leaf.reshape(-1).long(), returned.reshape(-1).long()):
        return torch.arange(returned.numel(), device=leaf.device).view(leaf.shape)
    return None


def equally_good(chosen: Chosen, own: RecordedIndices | None, got: torch.Tensor, precision: str) -> bool:
    """Return whether the positions that a program chose have scores as good as those of the reference.

    `own` is the record of the same call at the problem's dtype. The error of its scores shows how close two scores must
    be for rounding to decide.
    """
    choice = chosen.choice
    width, size = choice.index.shape[1], choice.scores.shape[1]
    places, named = chosen.places.reshape(-1), got.reshape(-1).long()
    row, truly = places // width, choice.index.reshape(-1)[places]
    output = chosen.output.reshape(-1).long()
    kept = truly == output  # the module has changed the others in place (a mask, a code): they are no positions
    if not torch.equal(named[~kept], output[~kept]):
        return False
    row, named, truly = row[kept], named[kept], truly[kept]
    if bool(((named < 0) | (named >= size)).any()):
        return False
    if choice.operator in RUNNING:
        if bool((named > (places % width)[kept]).any()):
            return False
    elif _distinct(row, named, size) < _distinct(row, truly, size):
        return False
    scores = choice.scores.double()
    theirs, best = scores[row, named], scores[row, truly]
    if choice.stable and bool(((theirs == best) & (named != truly)).any()):
        return False
    nearness = _Nearness(scores, _scores_of(own, chosen), precision)
    if not choice.ordered:
        named, truly = _in_order(row, named, theirs), _in_order(row, truly, best)
        row = row[row.argsort(stable=True)]
        theirs, best = scores[row, named], scores[row, truly]
    limit = nearness.limits(row, named, truly)
    apart = (theirs - best).abs()
    alike = (theirs == best) | (theirs.isnan() & best.isnan()) | (apart <= limit)
    return bool(alike.all())


def _scores_of(own: RecordedIndices | None, chosen: Chosen) -> torch.Tensor | None:
    """Return the scores of the same choice in another record; None if it has no such choice."""
    if own is None or len(own.choices) <= chosen.number:
        return None
    scores = own.choices[chosen.number].scores
    return scores if scores.shape == chosen.choice.scores.shape else None


class _Nearness:
    """Computes how close two scores of a row must be for rounding to change their order.

    Three errors count: those of the two scores, and the largest error of the scores that rank next to torch's choice.
    The third leaves out errors that the magnitude of their own score explains, such as that of the score -1e9 at a
    masked position: they say nothing about smaller scores.
    """

    def __init__(self, scores: torch.Tensor, own: torch.Tensor | None, precision: str) -> None:
        self._computed = own is not None and own.is_floating_point()
        if own is None or not self._computed:
            return
        self._scores = scores.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        self._errors = (own.double() - scores).abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        self._computed_rows = self._errors.any(dim=1)  # the others are given, so nothing is rounded
        eps = torch.finfo(own.dtype).eps
        name = str(own.dtype).removeprefix("torch.")
        self._floor = eps if precision == "strict" else FLOORS[precision].get(name, 0.0)
        unexplained = self._errors.masked_fill(self._errors <= ERROR_FACTOR * eps * self._scores.abs(), 0.0)
        order = self._scores.argsort(dim=1)
        side = min(MOST_NEIGHBOURS, max(LEAST_NEIGHBOURS, scores.shape[1] // 16))
        ranked = unexplained.gather(1, order).unsqueeze(1)
        most = torch.nn.functional.max_pool1d(ranked, 2 * side + 1, stride=1, padding=side).squeeze(1)
        self._around = torch.empty_like(most).scatter_(1, order, most)

    def limits(self, row: torch.Tensor, named: torch.Tensor, truly: torch.Tensor) -> torch.Tensor:
        """Return for each pair of positions in a row the largest difference of their scores that rounding explains."""
        if not self._computed:
            return torch.zeros(len(row), dtype=torch.float64, device=row.device)
        largest = torch.maximum(self._scores[row, named].abs(), self._scores[row, truly].abs())
        error = torch.maximum(self._errors[row, named], self._errors[row, truly])
        error = torch.maximum(error, self._around[row, truly])
        limit = ERROR_FACTOR * torch.maximum(error, self._floor * largest)
        return limit.masked_fill(~self._computed_rows[row], 0.0)


def _in_order(row: torch.Tensor, places: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Return the positions sorted by score within each row."""
    by_score = scores.argsort(stable=True)
    return places[by_score][row[by_score].argsort(stable=True)]


def _distinct(row: torch.Tensor, index: torch.Tensor, size: int) -> int:
    """Return the number of distinct pairs of row and position."""
    return len(torch.unique(row * size + index))


def names_one_twice(own: torch.Tensor, got: torch.Tensor) -> bool:
    """Return whether a program chose a position twice where torch chose distinct ones, along any dimension."""
    return any(_all_different(own, at) and not _all_different(got, at) for at in range(own.dim()))


def _all_different(indices: torch.Tensor, dimension: int) -> bool:
    ordered = indices.sort(dim=dimension).values
    return not bool((ordered.diff(dim=dimension) == 0).any())


def chose_among_equals(
    reference: Reference,
    truth: Truth,
    records: tuple[RecordedIndices, RecordedIndices],
    output: Any,
    is_right: Callable[[Truth], bool],
) -> bool:
    """Return whether the output is right for other choices among equal scores than torch's, such as elements that are
    looked up at the positions of a top-k.

    The reference is run with other orders of preference: the first of equal scores, the last, and random ones. First
    all choices of a call have the same order, then each of them has one of its own. `records` are the reference's
    choices in double precision and at its own dtype. `is_right` compares the output with a result.
    """
    exact, own = records
    if not any(map(has_ties, (*exact.choices, *own.choices))):
        return False
    count = len(exact.choices)
    search = _TieSearch(reference, truth, [len(choice.index) for choice in exact.choices], output, is_right)
    alone = range(count) if 1 < count <= MOST_ALONE else ()
    tries = [
        *((range(count), order) for order in range(TIE_ORDERS)),
        *((range(each, each + 1), order) for each in alone for order in (FIRST, LAST)),
    ]
    return any(search.explains(choices, order) for choices, order in tries)


class _TieSearch:
    """Searches for the orders among equal scores in which the reference gives a program's output.

    Each row of a choice has its own order, because a program may choose otherwise in every row. The reference is run
    with these orders. So all outputs, and all parts of an output, must follow from the same choices.
    """

    def __init__(
        self, reference: Reference, truth: Truth, rows: list[int], output: Any, is_right: Callable[[Truth], bool]
    ) -> None:
        """`rows` are the numbers of rows of the reference's choices."""
        self._reference = reference
        self._inputs = truth.inputs
        self._rows = rows
        self._got = pytree.tree_leaves(ordered_like(truth.own, output))
        self._is_right = is_right
        self._orders = [torch.full((count,), FIRST) for count in rows]
        """For each choice, the orders of its rows that come nearest to the output."""
        self._apart: dict[int, torch.Tensor] = {}
        """For each number of rows, how far the rows of the output are from the result of these orders."""

    def explains(self, choices: Collection[int], order: int) -> bool:
        """Return whether the output is right with this order in the choices of these numbers, in all rows or in those
        that come nearer by it. If it is not, such rows keep this order."""
        tried = [torch.full_like(each, order) if at in choices else each for at, each in enumerate(self._orders)]
        apart = self._apart_with(tried)
        if apart is None:
            return True
        nearer = {rows: each < self._apart[rows] if self._apart else each >= 0 for rows, each in apart.items()}
        mixed = list(self._orders)
        for at in choices:
            if self._rows[at] in nearer:
                mixed[at] = torch.where(nearer[self._rows[at]], tried[at], mixed[at])
        if same(mixed, self._orders) and self._apart:
            return False
        found = apart if same(mixed, tried) else self._apart_with(mixed)
        if found is None:
            return True
        self._orders, self._apart = mixed, found
        return False

    def _apart_with(self, orders: list[torch.Tensor]) -> dict[int, torch.Tensor] | None:
        """Return how far each row of the output is from the reference's result with these orders; None if it is
        right."""
        with OtherTies(orders):
            other = self._reference.truth_of_copies(self._inputs)
        if other is None:
            return {}
        return None if self._is_right(other) else _apart_by_row(other, self._got, self._rows)


def _apart_by_row(truth: Truth, got: list[Any], rows: list[int]) -> dict[int, torch.Tensor]:
    """Return for each number of rows how far each row of a program's outputs is from a result, relative to its scale.

    It adds up over all outputs whose first dimensions have that many rows. A number that no output has is left out.
    """
    found: dict[int, torch.Tensor] = {}
    for right, theirs in zip(pytree.tree_leaves(truth.exact), got, strict=False):
        if not all(isinstance(leaf, torch.Tensor) for leaf in (right, theirs)) or right.shape != theirs.shape:
            continue
        wide = torch.complex128 if right.is_complex() else torch.float64  # torch cannot subtract boolean tensors
        difference = (right.to(wide) - theirs.to(wide)).abs()
        difference = (difference / right.to(wide).abs().mean().clamp(min=LEAST_SCALE)).nan_to_num_(nan=1.0, posinf=1.0)
        leading = {math.prod(right.shape[: count + 1]) for count in range(right.dim())}
        for count in (leading & set(rows)) - {0}:
            found[count] = found.get(count, torch.zeros(())) + difference.reshape(count, -1).sum(1).cpu()
    return found

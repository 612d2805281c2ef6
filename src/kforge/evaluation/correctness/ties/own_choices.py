"""Computes the outputs that follow from the positions that a program chose, if these differ from torch's. (torch)

A program may choose another position than torch if its score is as good (`index_ties.py`). Its other outputs must then
follow from this choice. So the reference is run with the program's choices, and the whole output is compared with the
result. If one choice follows from another one, its scores are taken from a run with the program's earlier choices.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Truth, ordered_like
from kforge.evaluation.correctness.ties.index_ties import chosen_by, chosen_from, equally_good
from kforge.evaluation.reference.choices import RUNNING, MadeChoices, as_returned, is_whole, recorded
from kforge.evaluation.reference.reference import in_double
from kforge.problems.tensors import cloned, same

if TYPE_CHECKING:
    from kforge.evaluation.correctness.ties.index_ties import Chosen
    from kforge.evaluation.reference.choices import Choice, RecordedIndices
    from kforge.evaluation.reference.reference import Reference

    Records = tuple[RecordedIndices, RecordedIndices]
    """The choices of the reference in double precision and at its own dtype."""


@dataclass(frozen=True)
class OwnChoices:
    """Choices that a program returns, which are as good as torch's."""

    given: dict[int, torch.Tensor]
    """The chosen positions, by the number of the choice in a call of the reference."""
    count: int
    """Number of choices in a call."""
    leaves: frozenset[int]
    """Numbers of the outputs from which these choices were read."""
    truth: Truth
    """The right output if these choices are made."""

    def made(self) -> MadeChoices:
        """Return a mode of torch in which the reference makes these choices."""
        return MadeChoices(self.given, self.count)


def records(reference: Reference, inputs: list[Any], made: OwnChoices | None = None) -> Records | None:
    """Return the choices of the reference in double precision and at its own dtype. None if it fails.

    If it fails in double precision only, both are those at its own dtype. `made` are choices of a program that the
    reference makes instead of its own.
    """

    def record(model: torch.nn.Module, given: list[Any]) -> RecordedIndices:
        # a copy, because a call may change buffers
        return recorded(
            lambda: reference.own_result(given, copy.deepcopy(model)), None if made is None else made.made()
        )

    try:
        own = record(reference.model, cloned(inputs))
    except ProblemError:
        return None
    try:
        return record(reference.exact_model, in_double(inputs)), own
    except ProblemError:  # for example a module that names its own dtypes
        return own, own


def own_choices(reference: Reference, truth: Truth, output: Any, precision: str) -> list[OwnChoices]:
    """Return the choices that the program returns, with what follows from them. Returns nothing if the program returns
    torch's choices, or none that is as good.

    There are two results if the module makes a choice that is returned more than once: in the first one, all of these
    are the program's; in the second one, only the returned choice is.
    """
    rights = pytree.tree_leaves(truth.exact)
    theirs = pytree.tree_leaves(ordered_like(truth.own, output))
    returned = {
        leaf: got
        for leaf, (right, got) in enumerate(zip(rights, theirs, strict=False))
        if _is_index(right) and _is_index(got) and right.shape == got.shape
    }
    if all(torch.equal(rights[leaf].long(), got.long()) for leaf, got in returned.items()):
        return []
    base = records(reference, truth.inputs)
    if base is None or not base[0].choices:
        return []
    leaves_by_choice: dict[int, list[int]] = {}
    for leaf in returned:
        chosen = chosen_by(base[0], leaf, rights[leaf])
        if chosen is not None:
            leaves_by_choice.setdefault(chosen.number, []).append(leaf)
    ways = [{number: _twins(base[0].choices, number) for number in leaves_by_choice}]
    if any(len(twins) > 1 for twins in ways[0].values()):
        ways.append({number: [number] for number in leaves_by_choice})
    chain = _Chain(reference, truth, precision, base, returned)
    found = [chain.choices(leaves_by_choice, twins) for twins in ways]
    return [each for each in found if each is not None]


class _Chain:
    """Reads a program's choices from its output, in the order in which the reference makes them."""

    def __init__(
        self, reference: Reference, truth: Truth, precision: str, base: Records, returned: dict[int, torch.Tensor]
    ) -> None:
        """`base` are the reference's own choices, and `returned` the program's index outputs by their number."""
        self._reference, self._truth, self._precision = reference, truth, precision
        self._base, self._returned = base, returned

    def choices(self, leaves_by_choice: dict[int, list[int]], twins: dict[int, list[int]]) -> OwnChoices | None:
        """Return the choices that are as good as torch's, and what follows from them. None if there are none, or if
        that cannot be computed."""
        found = OwnChoices({}, len(self._base[0].choices), frozenset(), self._truth)
        seen = self._base
        for number, leaves in sorted(leaves_by_choice.items()):
            whole = self._whole(seen, number, leaves)
            if whole is None:
                continue
            given = found.given | dict.fromkeys(twins[number], whole)
            found = replace(found, given=given, leaves=found.leaves | set(leaves))
            if number != max(leaves_by_choice):
                rerun = records(self._reference, self._truth.inputs, found)
                if rerun is None or any(len(each.choices) != found.count for each in rerun):
                    return None
                seen = rerun
        return self._followed(found) if found.given else None

    def _whole(self, seen: Records, number: int, leaves: list[int]) -> torch.Tensor | None:
        """Return a choice of the program with the shape that the operator returns. None if it is not as good as
        torch's."""
        exact, own = seen
        chosen = [chosen_from(exact, leaf, number) for leaf in leaves]
        pairs = [(one, self._returned[leaf]) for one, leaf in zip(chosen, leaves, strict=True) if one is not None]
        if len(pairs) < len(leaves):
            return None
        if not all(equally_good(one, own, got, self._precision) for one, got in pairs):
            return None
        return _completed(pairs)

    def _followed(self, found: OwnChoices) -> OwnChoices | None:
        """Return the choices with the output that follows from them."""
        if not self._reference.has_history:  # another call would have another result
            with found.made() as made:
                truth = self._reference.truth_of_copies(self._truth.inputs)
            if truth is not None and len(made.choices) == found.count * (1 if truth.exact is truth.own else 2):
                return replace(found, truth=truth)
        return self._if_nothing_follows(found)

    def _if_nothing_follows(self, found: OwnChoices) -> OwnChoices | None:
        """Return the choices with torch's output, in which only the chosen positions are replaced. None if another
        output depends on the choices, or if the module changes the positions after it has chosen them."""
        seen = records(self._reference, self._truth.inputs, found)
        if seen is None:
            return None
        for leaf, (before, after) in enumerate(zip(self._base[0].leaves, seen[0].leaves, strict=True)):
            right = self._returned[leaf].to(after.dtype) if leaf in found.leaves else before
            if not same(right, after):
                return None
        exact, form = pytree.tree_flatten(self._truth.exact)
        own = pytree.tree_leaves(self._truth.own)
        for leaf in found.leaves:
            exact[leaf], own[leaf] = (self._returned[leaf].to(each[leaf].dtype) for each in (exact, own))
        exact, own = (pytree.tree_unflatten(each, form) for each in (exact, own))
        return replace(found, truth=Truth(exact, own, self._truth.inputs))


def _is_index(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and is_whole(leaf) and leaf.dtype != torch.bool


def _twins(choices: list[Choice], number: int) -> list[int]:
    """Return the numbers of the choices that were made among the same scores, with the same result."""
    one = choices[number]
    return [
        at
        for at, other in enumerate(choices)
        if other.returned.shape == one.returned.shape
        and torch.equal(other.index, one.index)
        and torch.equal(other.scores, one.scores)
    ]


def _completed(pairs: list[tuple[Chosen, torch.Tensor]]) -> torch.Tensor:
    """Return a program's choice with the shape that the operator returns.

    Outputs may have only a part of it. The rest are torch's positions that the program has not returned, in their
    order.
    """
    choice = pairs[0][0].choice
    truly = choice.index.reshape(-1)
    rows, marked = truly.clone(), torch.zeros_like(truly, dtype=torch.bool)
    for chosen, got in pairs:
        places = chosen.places.reshape(-1)
        kept = truly[places] == chosen.output.reshape(-1).long()  # the module has changed the others afterwards
        rows[places[kept]] = got.reshape(-1)[kept].to(rows.dtype)
        marked[places[kept]] = True
    rows, marked = rows.view(choice.index.shape), marked.view(choice.index.shape)
    if bool(marked.all()) or choice.operator in RUNNING:
        return as_returned(choice, rows)
    named = torch.zeros_like(choice.scores, dtype=torch.bool)
    named[marked.nonzero()[:, 0], rows[marked]] = True
    left = choice.index.gather(1, named.gather(1, choice.index).int().argsort(dim=1, stable=True))
    slots = ((~marked).long().cumsum(1) - 1).clamp(min=0)
    return as_returned(choice, torch.where(marked, rows, left.gather(1, slots)))

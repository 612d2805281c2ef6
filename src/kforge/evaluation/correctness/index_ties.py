"""Judges outputs of indices (argmax, top-k, sort) by the scores from which the reference chose them. (torch)

The scores often exist only inside a module, such as products of which the largest is chosen. So the reference is run
again, in double precision and at its own dtype, and every operator that chooses is recorded with its scores. An index
output is matched with the results of these operators: it is a view of one, or has equal values. A program may choose
other positions than torch if their scores are equally good: equal, or so close that rounding decides. If torch chooses
distinct positions, the program must do so, too. If the order of equal scores is defined (a stable sort, the first of
the largest integers), the program must keep that order.

Other outputs may follow from such choices, such as elements that are looked up at the chosen positions. They are right
if the reference gives them when it chooses others among equal scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.evaluation.comparison.comparison import Truth, ordered_like
from kforge.evaluation.comparison.fast_convolution import is_fast
from kforge.evaluation.constants import ERROR_FACTOR, FLOORS, TIE_ORDERS
from kforge.problems.tensors import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.reference.reference import Reference

_CHOOSES = {
    # operator: which of its results is the index
    "aten::argmax": 0,
    "aten::argmin": 0,
    "aten::max": 1,
    "aten::min": 1,
    "aten::topk": 1,
    "aten::sort": 1,
    "aten::kthvalue": 1,
    "aten::median": 1,
    "aten::nanmedian": 1,
    "aten::cummax": 1,
    "aten::cummin": 1,
    "aten::mode": 1,
}
"""Operators that choose positions (argmax, sort), and which of their results has the positions."""
_FACTORIZES = (
    "aten::linalg_",
    "aten::_linalg_",
    "aten::cholesky",
    "aten::triangular_solve",
    "aten::geqrf",
    "aten::ormqr",
)
"""Beginnings of the names of operators that solve linear equations or factorize matrices."""
_NO_FACTORS = ("norm", "cross", "vecdot", "vander", "diagonal")
"""Ends of operator names that begin like `_FACTORIZES`, but neither solve equations nor factorize."""
LEAST_NEIGHBOURS, MOST_NEIGHBOURS = 4, 16
"""Fewest and most neighbouring scores, on either side in the ranking, that are used to estimate the rounding error of a
score."""


@dataclass(frozen=True)
class Choice:
    """One call of an operator that chooses positions along a dimension, such as argmax or sort."""

    operator: str
    scores: torch.Tensor
    """The numbers among which the operator chose, one row for each choice."""
    index: torch.Tensor
    """The chosen positions, one row for each row of the scores."""
    returned: torch.Tensor
    """`index` as the operator returned it. Other tensors may be views of it."""
    moved: Callable[[torch.Tensor], torch.Tensor]
    """Converts a tensor with the shape of `returned` into the shape of `index`."""
    ordered: bool
    """Whether the order of the chosen positions is defined."""
    stable: bool
    """Whether equal scores have a defined order."""


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


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of torch that records every choice, and whether there is a convolution or a factorization."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.choices: list[Choice] = []
        self.convolves = False
        self.factorizes = False
        self._counts: list[torch.Tensor] = []
        """Integers and masks that were converted to floating-point numbers."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that the first call in this mode does not import dynamo."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        self.convolves |= is_fast(func, args)
        self.factorizes |= is_factorization(name)
        if name == "aten::_to_copy" and _is_whole(args[0]):
            self._counts.append(result)
        if name in _CHOOSES:
            at = _CHOOSES[name]
            index = result if at == 0 else result[at] if isinstance(result, (tuple, list)) else None
            choice = _noted(func, args, kwargs or {}, index, any(args[0] is each for each in self._counts))
            if choice is not None:
                self.choices.append(choice)
                self.note(choice)
        return result

    def note(self, choice: Choice) -> None:
        """Do nothing: a subclass may change what the operator returns."""


class OtherTies(Recorder):  # type: ignore[no-untyped-call]
    """A mode of torch in which choices among equal scores are made in another order: `order` gives, for a number of
    positions, the order in which equal scores are preferred. Scores whose order is defined are left alone."""

    def __init__(self, order: Callable[[int], torch.Tensor]) -> None:
        super().__init__()
        self._order = order
        self.made: list[torch.Tensor] = []
        """The positions that were chosen, one tensor for each choice."""

    def note(self, choice: Choice) -> None:
        """Write other positions with the same scores into the operator's result."""
        index = choice.index
        if not choice.stable and choice.operator not in _RUNNING:
            index = _preferred(choice, self._order(choice.scores.shape[1]).to(index.device))
            choice.returned.copy_(_as_returned(choice, index))
        self.made.append(index)


_RUNNING = ("cummax", "cummin")
"""Operators whose choice at a position must not lie behind it, so that equal scores cannot be exchanged freely."""


def _preferred(choice: Choice, columns: torch.Tensor) -> torch.Tensor:
    """Return the chosen positions with each replaced by one of equal score: those that come first in `columns`, in that
    order."""
    scores = choice.scores.to(torch.uint8) if choice.scores.dtype == torch.bool else choice.scores
    ranked = columns[scores[:, columns].argsort(dim=1, stable=True)]
    begins = _run_begins(scores.gather(1, ranked))
    run = torch.empty_like(begins).scatter_(1, ranked, begins).gather(1, choice.index)
    by_run = run.argsort(dim=1, stable=True)
    runs = run.gather(1, by_run)
    count = torch.arange(run.shape[1], device=run.device).expand_as(run) - _run_begins(runs)
    earlier = torch.empty_like(run).scatter_(1, by_run, count)
    return ranked.gather(1, run + earlier)


def _run_begins(ordered: torch.Tensor) -> torch.Tensor:
    """Return for each element of sorted rows the position at which the run of elements equal to it begins."""
    places = torch.arange(ordered.shape[1], device=ordered.device).expand_as(ordered)
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.where(begins, places, 0).cummax(dim=1).values


def is_factorization(name: str) -> bool:
    """Return whether the operator of this name solves linear equations or factorizes matrices."""
    return name.startswith(_FACTORIZES) and not name.rpartition("linalg_")[2].endswith(_NO_FACTORS)


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def _noted(func: Any, args: Any, kwargs: Any, returned: Any, counts: bool) -> Choice | None:
    """Return the choice that a call made; None if its arguments are of another form.

    `counts`: the scores were integers before they were converted.
    """
    operator = func._schema.name.removeprefix("aten::")
    named = {spec.name: value for spec, value in zip(func._schema.arguments, args, strict=False)} | dict(kwargs)
    scores: torch.Tensor = args[0]
    if not isinstance(returned, torch.Tensor) or not scores.numel():
        return None
    dim = named.get("dim", -1)
    if operator in ("argmax", "argmin") and named.get("dim") is None:
        scores, dim = scores.reshape(-1), 0
    keeps = returned.dim() == scores.dim()
    if not scores.dim() or not (keeps or returned.dim() == scores.dim() - 1):
        return None
    size = scores.shape[dim]
    names_first = operator in ("argmax", "argmin", "max", "min") and (counts or _is_whole(scores))

    def moved(index: torch.Tensor) -> torch.Tensor:
        along = index.movedim(dim, -1) if keeps else index.unsqueeze(-1)
        return along.reshape(-1, along.shape[-1])

    return Choice(
        operator=operator,
        scores=scores.detach().movedim(dim, -1).reshape(-1, size).clone(),
        index=moved(returned).clone(),
        returned=returned,
        moved=moved,
        ordered=bool(named.get("sorted", True)),
        stable=bool(named.get("stable")) or names_first,
    )


@dataclass(frozen=True)
class RecordedIndices:
    """What was recorded in one call of a module: its results, and all choices of positions."""

    leaves: list[Any]
    """The tensors and other values that the module returned."""
    choices: list[Choice]
    convolves: bool
    """Whether there is a convolution for which fast algorithms exist, which round more than a sum of products."""
    factorizes: bool
    """Whether the module solves linear equations or factorizes matrices."""


def recorded(run: Callable[[], Any]) -> RecordedIndices:
    """Call `run`, and return its result with all choices that it made. Raises what `run` raises."""
    with Recorder() as recorder:
        result = run()
    return RecordedIndices(pytree.tree_leaves(result), recorder.choices, recorder.convolves, recorder.factorizes)


def chosen_by(record: RecordedIndices, leaf: int, exact: torch.Tensor) -> Chosen | None:
    """Return the choice from which an index output came; None if no recorded choice fits."""
    output = record.leaves[leaf]
    if not torch.equal(output, exact):
        return None
    for number, choice in reversed(list(enumerate(record.choices))):
        places = _places_in(output, choice.returned)
        if places is not None:
            rows = choice.moved(torch.arange(choice.returned.numel(), device=output.device).view(choice.returned.shape))
            position = torch.empty(choice.returned.numel(), dtype=torch.long, device=output.device)
            position[rows.reshape(-1)] = torch.arange(rows.numel(), device=output.device)
            return Chosen(number, choice, position[places], exact)
    return None


def _places_in(leaf: torch.Tensor, returned: torch.Tensor) -> torch.Tensor | None:
    """Return for each element of an output its position in an operator's result: by memory, or by equal values. None if
    it does not come from there."""
    shares = leaf.dtype == returned.dtype and leaf.untyped_storage().data_ptr() == returned.untyped_storage().data_ptr()
    if shares and returned.is_contiguous() and not returned.storage_offset():
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
    if _distinct(row, named, size) < _distinct(row, truly, size):
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

    An error that is explained by the magnitude of its own score says nothing about smaller scores: a masked position
    has the score -1e9. Of the other errors, only those of scores that rank next to the two scores count.
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


def chose_among_equals(reference: Reference, truth: Truth, output: Any, is_right: Callable[[Truth], bool]) -> bool:
    """Return whether the output is right for other choices among equal scores than torch's, such as elements that are
    looked up at the positions of a top-k.

    The reference is run with other orders of preference: the first of equal scores, the last, and random ones. The
    output must be that of one order, or each of its rows that of any. `is_right` compares the output with a result.
    """
    got, nearest = ordered_like(truth.own, output), None
    first: list[torch.Tensor] = []
    for number in range(TIE_ORDERS):
        with OtherTies(partial(_preference, number)) as ties:
            other = reference.truth_of_copies(truth.inputs)
        if other is None or not ties.made:
            return False
        if number == 1 and same(first, ties.made):  # no choice was among equal scores
            return False
        first = first or ties.made
        rows = {len(index) for index in ties.made}
        nearest = other if nearest is None else _nearer(nearest, other, got, rows)
        if is_right(other) or is_right(nearest):
            return True
    return False


def _preference(number: int, size: int) -> torch.Tensor:
    """Return an order of positions: ascending, descending, or random, by its number."""
    if number < 2:
        ascending = torch.arange(size)
        return ascending if number == 0 else ascending.flip(0)
    return torch.randperm(size, generator=torch.Generator().manual_seed(number))


def _nearer(one: Truth, other: Truth, got: Any, rows: set[int]) -> Truth:
    """Return for each row of an output that of two results which is nearer to the program's. `rows` are the numbers of
    rows among which choices were made; an output with another number has no such rows, and stays that of `one`."""
    trees = (one.exact, one.own, other.exact, other.own, got)
    exact, own = [], []
    for first, first_own, second, second_own, theirs in zip(*map(pytree.tree_leaves, trees), strict=False):
        tensors = all(isinstance(leaf, torch.Tensor) for leaf in (first, second, theirs))
        if tensors and first.shape == second.shape == theirs.shape and first.dim() and len(first) in rows:
            apart = [(leaf - theirs).abs().double().reshape(len(leaf), -1).amax(1) for leaf in (first, second)]
            better = (apart[1] < apart[0]).view(-1, *[1] * (first.dim() - 1))
            first, first_own = torch.where(better, second, first), torch.where(better, second_own, first_own)
        exact.append(first)
        own.append(first_own)
    structure = pytree.tree_structure(one.own)
    return Truth(pytree.tree_unflatten(exact, structure), pytree.tree_unflatten(own, structure), one.inputs)


def follows_from_own_choices(
    reference: Reference, truth: Truth, records: tuple[RecordedIndices, RecordedIndices], output: Any, precision: str
) -> Truth | None:
    """Return the result of the reference if it makes the choices that the program returns as index outputs. None if the
    program returns no choice that is as good as torch's.

    `records` are the reference's choices in double precision and at its own dtype.
    """
    exact, own = records
    given: dict[int, torch.Tensor] = {}
    rights, theirs = (pytree.tree_leaves(tree) for tree in (truth.exact, ordered_like(truth.own, output)))
    for leaf, (right, got) in enumerate(zip(rights, theirs, strict=False)):
        if not (_is_index(right) and _is_index(got) and right.shape == got.shape):
            continue
        chosen = chosen_by(exact, leaf, right)
        if chosen is not None and equally_good(chosen, own, got, precision):
            whole = _whole_choice(chosen, got)
            given |= {} if whole is None else {chosen.number: whole}
    if not given:
        return None
    with MadeChoices(given, len(exact.choices)):
        return reference.truth_of_copies(truth.inputs)


class MadeChoices(Recorder):  # type: ignore[no-untyped-call]
    """A mode of torch in which some choices are given, by their number among the `count` choices of a call."""

    def __init__(self, given: dict[int, torch.Tensor], count: int) -> None:
        super().__init__()
        self._given = given
        self._count = count

    def note(self, choice: Choice) -> None:
        """Write the given positions into the operator's result."""
        given = self._given.get((len(self.choices) - 1) % self._count)
        if given is not None and given.shape == choice.returned.shape:
            choice.returned.copy_(given)


def _is_index(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and _is_whole(leaf) and leaf.dtype != torch.bool


def _whole_choice(chosen: Chosen, got: torch.Tensor) -> torch.Tensor | None:
    """Return a program's choice with the shape that the operator returns. None if its output has only a part of it."""
    choice, places = chosen.choice, chosen.places.reshape(-1)
    if len(torch.unique(places)) != choice.index.numel():
        return None
    rows = torch.empty_like(choice.index.reshape(-1))
    rows[places] = got.reshape(-1).to(rows.dtype)
    return _as_returned(choice, rows)


def _as_returned(choice: Choice, rows: torch.Tensor) -> torch.Tensor:
    """Return positions, one row for each choice, with the shape that the operator returns."""
    slots = choice.moved(torch.arange(rows.numel(), device=rows.device).view(choice.returned.shape))
    flat = torch.empty_like(rows.reshape(-1))
    flat[slots.reshape(-1)] = rows.reshape(-1)
    return flat.view(choice.returned.shape)

"""Records which positions a module chooses (argmax, top-k, sort), by which scores, and lets it choose others. (torch)

The scores often exist only inside a module, such as products of which the largest is chosen. So a call is run in a
dispatch mode of torch, which sees every operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.evaluation.comparison.fast_convolution import is_fast

if TYPE_CHECKING:
    from collections.abc import Callable

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


_KEEPS_WHOLE = frozenset(
    f"aten::{name}"
    for name in (
        *("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "transpose", "t", "permute", "slice"),
        *("select", "alias", "detach", "clone", "flip", "roll", "cat", "stack", "neg", "abs"),
        *("add", "sub", "rsub", "mul", "sum", "cumsum", "maximum", "minimum", "_to_copy"),
    )
)
"""Operators whose results are whole numbers, even in a floating-point dtype, if all of their arguments are."""


@dataclass(frozen=True)
class Choice:
    """One call of an operator that chooses positions along a dimension, such as argmax or sort."""

    operator: str
    scores: torch.Tensor
    """The numbers among which the operator chose: one row for each position in the other dimensions."""
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


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of torch that records every choice, and whether there is a convolution or a factorization."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.choices: list[Choice] = []
        self.convolves = False
        self.factorizes = False
        self._counts: dict[int, torch.Tensor] = {}
        """Tensors that were computed from integers and masks, so that their elements are whole numbers, even in a
        floating-point dtype. The keys are their `id`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that the first call in this mode does not import dynamo."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        self.convolves |= is_fast(func, args)
        self.factorizes |= is_factorization(name)
        if name in _KEEPS_WHOLE and isinstance(result, torch.Tensor) and self._are_whole((args, kwargs)):
            self._counts[id(result)] = result
        elif func._schema.is_mutable and args:
            self._counts.pop(id(args[0]), None)
        if name in _CHOOSES:
            at = _CHOOSES[name]
            index = result if at == 0 else result[at] if isinstance(result, (tuple, list)) else None
            choice = _noted(func, args, kwargs or {}, index, id(args[0]) in self._counts)
            if choice is not None:
                self.choices.append(choice)
                self.note(choice)
        return result

    def _are_whole(self, arguments: Any) -> bool:
        """Return whether all tensors and numbers among the arguments of a call are integers by construction."""
        leaves = pytree.tree_leaves(arguments)
        return all(
            is_whole(leaf) or id(leaf) in self._counts
            if isinstance(leaf, torch.Tensor)
            else not isinstance(leaf, float) or leaf.is_integer()
            for leaf in leaves
        )

    def note(self, choice: Choice) -> None:
        """Do nothing. A subclass may change what the operator returns; this is called for each recorded choice."""


class OtherTies(Recorder):  # type: ignore[no-untyped-call]
    """A mode of torch in which choices among equal scores are made in other orders.

    `orders` has a tensor for each choice of a call: for each of its rows, the number of the order in which equal scores
    are preferred (`_preference`). Scores whose order is defined are left alone.
    """

    def __init__(self, orders: list[torch.Tensor]) -> None:
        super().__init__()
        self._orders = orders

    def note(self, choice: Choice) -> None:
        """Write other positions with the same scores into the operator's result."""
        orders = self._orders[(len(self.choices) - 1) % len(self._orders)]
        if is_free(choice) and len(orders) == len(choice.index):
            choice.returned.copy_(as_returned(choice, _preferred_by_row(choice, orders)))


RUNNING = ("cummax", "cummin")
"""Operators that choose only among the positions up to the current one, so that equal scores cannot be exchanged
freely."""
FIRST, LAST = 0, 1
"""Numbers of the orders that prefer the first and the last of equal scores; all higher numbers are random orders."""


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


def _preferred_by_row(choice: Choice, orders: torch.Tensor) -> torch.Tensor:
    """Return the chosen positions, where each row prefers equal scores in the order of its number."""
    index, orders = choice.index, orders.to(choice.index.device)
    for number in sorted(set(orders.tolist())):
        preferred = _preferred(choice, _preference(number, choice.scores.shape[1]).to(index.device))
        index = torch.where((orders == number).view(-1, 1), preferred, index)
    return index


def _run_begins(ordered: torch.Tensor) -> torch.Tensor:
    """Return for each element of sorted rows the position at which the run of elements equal to it begins."""
    places = torch.arange(ordered.shape[1], device=ordered.device).expand_as(ordered)
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.where(begins, places, 0).cummax(dim=1).values


def is_factorization(name: str) -> bool:
    """Return whether the operator of this name solves linear equations or factorizes matrices."""
    return name.startswith(_FACTORIZES) and not name.rpartition("linalg_")[2].endswith(_NO_FACTORS)


def is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def _noted(func: Any, args: Any, kwargs: Any, returned: Any, counts: bool) -> Choice | None:
    """Return the choice that a call made; None if it has no scores, or if its index has an unexpected shape.

    `counts`: the scores were computed from integers.
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
    names_first = operator in ("argmax", "argmin", "max", "min") and (counts or is_whole(scores))

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


def recorded(run: Callable[[], Any], mode: Recorder | None = None) -> RecordedIndices:
    """Call `run` in a mode of torch, and return its result with all choices that it made. Raises what `run` raises."""
    with mode or Recorder() as recorder:
        result = run()
    return RecordedIndices(pytree.tree_leaves(result), recorder.choices, recorder.convolves, recorder.factorizes)


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


def _preference(number: int, size: int) -> torch.Tensor:
    """Return an order of positions: ascending, descending, or random, by its number."""
    if number in (FIRST, LAST):
        ascending = torch.arange(size)
        return ascending if number == FIRST else ascending.flip(0)
    return torch.randperm(size, generator=torch.Generator().manual_seed(number))


def has_ties(choice: Choice) -> bool:
    """Return whether a choice could have been made otherwise, because scores are equal."""
    if not is_free(choice):
        return False
    first, last = (_preferred_by_row(choice, torch.full((len(choice.index),), order)) for order in (FIRST, LAST))
    return not torch.equal(first, last)


def is_free(choice: Choice) -> bool:
    """Return whether a choice among equal scores may take any of their positions."""
    return not choice.stable and choice.operator not in RUNNING


def as_returned(choice: Choice, rows: torch.Tensor) -> torch.Tensor:
    """Return positions, one row for each choice, with the shape that the operator returns."""
    slots = choice.moved(torch.arange(rows.numel(), device=rows.device).view(choice.returned.shape))
    flat = torch.empty_like(rows.reshape(-1))
    flat[slots.reshape(-1)] = rows.reshape(-1)
    return flat.view(choice.returned.shape)

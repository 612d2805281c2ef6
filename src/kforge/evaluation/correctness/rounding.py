"""Decides whether rounding explains that an output is off: compares it with torch on perturbed inputs. (torch)

Torch's error on a case is one random sample of what it could be. If a problem amplifies rounding, such as a softmax of
very large scores, another careful program has another error: torch's own fused attention was refused for one element in
a hundred thousand. So before an output is called wrong, torch is run again with every input perturbed by a few units in
the last place. If that changes the result as much, the program is not to blame. The same holds for the parts of an
output (`comparison/locality.py`). Inputs are exact for every program, so those that the module may compare with a
number stay: else a loss of one number would be excused although it counts missing readings.

An output of indices, such as the nearest of some thousand codes, has no error that could be amplified: if two scores
are nearly equal, rounding decides. The scores are taken from the reference (`ties/index_ties.py`). Without scores
an index is accepted only if torch gives the same index at that position for perturbed inputs. A program that computes
with fewer bits differs at far more positions, and at most of them torch never agrees.

Libraries compute convolutions by algorithms that round more than a sum of products, such as Winograd's. For a reference
with convolutions the floor allows that, and the runs on perturbed inputs add such an error to every convolution
(`fast_convolution.py`).

Algorithms that solve linear equations or factorize matrices are only exact relative to the largest element of a matrix.
Elimination with pivoting is often better if rows have different scales; an orthogonal factorization is not. So for such
a reference the inputs are perturbed relative to the largest element of each matrix, and any share of an output may be
off. This holds only for the output tensors that depend on such an operator. Each matrix has its own limit. If the rows
or columns of the problem's own matrices have very different scales, such algorithms are useless for the problem; then
the inputs are perturbed relative to their rows and columns.
"""

from __future__ import annotations

import copy
import itertools
import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Truth, compare, element_errors, ordered_like, surroundings
from kforge.evaluation.comparison.fast_convolution import RoundedConvolutions
from kforge.evaluation.constants import (
    ERROR_FACTOR,
    FLIP_SHAKES,
    FLIPPED_SHARE,
    FLOORS,
    LOCAL_FACTOR,
    LOST,
    SHAKEN_SHARE,
    SHAKES,
    SINGULAR,
    SINGULAR_FACTOR,
)
from kforge.evaluation.correctness.perturbation import Scale, shaken
from kforge.evaluation.correctness.ties.index_ties import chose_among_equals, names_one_twice
from kforge.evaluation.correctness.ties.own_choices import own_choices, records
from kforge.evaluation.reference.choices import is_factorization, recorded
from kforge.problems.inputs.special_floats import named_numbers, numbers_of_module
from kforge.problems.tensors import cloned, same, spec, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kforge.evaluation.comparison.comparison import Agreement
    from kforge.evaluation.comparison.locality import Surroundings
    from kforge.evaluation.correctness.ties.own_choices import OwnChoices
    from kforge.evaluation.reference.choices import RecordedIndices
    from kforge.evaluation.reference.reference import Reference

MATRIX_OVER_ROWS = 16.0
"""Inputs are perturbed relative to their rows and columns if perturbing them relative to the whole matrix changes a
result more than this many times as much."""
MOVED_PART = 0.5
"""Largest share by which each result of a factorization is changed, to find out which outputs depend on it."""
_traits: WeakKeyDictionary[Reference, _Traits] = WeakKeyDictionary()
"""For each reference that was examined, which of its operators round in a special way."""


@dataclass(frozen=True)
class _Traits:
    """Which operators of a reference round in a special way."""

    convolves: bool
    """Whether the reference has a convolution for which fast algorithms exist, which round more."""
    factorizes: bool
    """Whether it has an operator that is only exact relative to the largest element of a matrix."""
    factored: frozenset[int]
    """Numbers of the output tensors that depend on an operator that solves linear equations or factorizes matrices."""
    scale: Scale
    """Whether perturbations of inputs are relative to the element, to its matrix, or to its row and column."""
    exact: tuple[float, ...]
    """Numbers with which it may compare inputs. A reading that is equal to the code of a missing one stays so."""


def excused(
    reference: Reference, truth: Truth, output: Any, precision: str, *, local: bool = False, slices: bool = True
) -> str | None:
    """Return a label if rounding explains why the output is off; None if the output is wrong.

    `local`: each part of the output must be right on its own scale. `slices`: slices are among the parts.
    """
    ways: list[OwnChoices | None] = [*own_choices(reference, truth, output, precision)]
    for made in ways or [None]:
        label = _rounded(reference, truth, output, precision, made, local=local, slices=slices)
        if label is not None:
            return label
    if reference.has_history:  # another call would change the history
        return None
    own = records(reference, truth.inputs)
    if own is None or not own[0].choices:
        return None
    fast = _traits_of(reference, truth.inputs).convolves

    def is_right(other: Truth) -> bool:
        found = compare(other, output, precision, "", local=local, fast=fast, slices=slices)
        return not isinstance(found, Mismatch)

    return "equal_choices" if chose_among_equals(reference, truth, own, output, is_right) else None


def _rounded(
    reference: Reference,
    truth: Truth,
    output: Any,
    precision: str,
    made: OwnChoices | None,
    *,
    local: bool,
    slices: bool,
) -> str | None:
    """Return a label if the output's errors are explained by rounding, or by the choices `made` by the program, which
    are as good as torch's. None if neither explains them."""
    truth = truth if made is None else made.truth
    exact, own, got = (pytree.tree_leaves(tree) for tree in (truth.exact, truth.own, ordered_like(truth.own, output)))
    if len(own) != len(got):  # an element is missing, which rounding does not explain
        return None
    # without fp64 torch's own error is not known: then any share of an output may be off by as much
    traits = _traits_of(reference, truth.inputs)
    free = traits.factored if reference.exact_is_fp64 else range(len(own))
    leaves = _Leaves(exact, own, got, precision, free=free)
    if not leaves.sort_out(fast=traits.convolves, local=local, slices=slices):
        return None
    for index in leaves.chosen:
        if (made is not None and index in made.leaves) or not leaves.flip(index):
            return None
    rounded = leaves.unexplained or leaves.parts or leaves.flipped
    if not rounded:
        return "fast_convolution" if made is None else "equal_choices"
    if reference.has_history:  # another call would change the history
        return None
    with nullcontext() if made is None else made.made():
        errors_are_torchs = _errors_are_torchs(reference, truth, leaves, by_slice=local)
        if not (errors_are_torchs and _flips_are_torchs(reference, truth, leaves)):
            return None
    only_parts = traits.convolves and not (leaves.unexplained or leaves.flipped)
    return "fast_convolution" if only_parts else "ill_conditioned"


def fails_nearby(reference: Reference, inputs: list[Any]) -> bool:
    """Return whether the reference itself fails for slight perturbations of these inputs.

    For example, a matrix may be barely positive definite, or only in double precision.
    """
    if reference.has_history or reference.seed is not None:  # other calls would change these
        return False
    model = copy.deepcopy(reference.model)
    try:
        traits = _traits_of(reference, inputs)
        for seed in range(SHAKES):
            reference.own_result(shaken(inputs, seed, traits.scale, exact=traits.exact), model)
    except ProblemError:
        return True
    return False


def gives_alike(reference: Reference, truth: Truth, inputs: list[Any], precision: str) -> bool:
    """Return whether the reference gives the same result for these inputs as in `truth`. Its state is not changed."""
    expected = reference.truth_of_copies(inputs)
    return expected is not None and not isinstance(compare(expected, truth.own, precision, ""), Mismatch)


class _Leaves:
    """The tensors of an output, sorted by the kind of their error."""

    def __init__(
        self, exact: list[Any], own: list[Any], got: list[Any], precision: str, free: Collection[int] = ()
    ) -> None:
        """`free` are the numbers of the tensors of which any share may be off by rounding, and not only
        SHAKEN_SHARE."""
        self.exact, self.own, self.got, self.precision, self.free = exact, own, got, precision, free
        self.chosen: list[int] = []
        """Numbers of the output tensors of integers that differ from the right ones."""
        self.flipped: dict[int, torch.Tensor] = {}
        """For each index tensor that is not explained by scores, a mask of the positions that differ."""
        self.unexplained: dict[int, torch.Tensor] = {}
        """For each tensor with errors above the tolerance, these errors; zero for all other elements."""
        self.parts: dict[int, Surroundings] = {}
        """Output tensors with parts (rows, runs, slices) that are wrong on their own scale."""
        self.rest: dict[int, torch.Tensor] = {}
        """For each tensor in `parts`, the output with right values in place of the errors in `unexplained`."""

    def sort_out(self, *, fast: bool, local: bool, slices: bool) -> bool:
        """Sort the tensors by the kind of their error.

        Returns False if one is off by more than rounding could explain.
        """
        for index, (one, ours, theirs) in enumerate(zip(self.exact, self.own, self.got, strict=True)):
            truth = Truth(one, ours)
            found = compare(truth, theirs, self.precision, "", fast=fast)
            if isinstance(found, Mismatch) and not self._may_be_rounding(index, found):
                return False
            if local and _has_errors(ours) and not self._sort_out_parts(index, found, fast=fast, slices=slices):
                return False
        return True

    def _sort_out_parts(self, index: int, found: Agreement | Mismatch, *, fast: bool, slices: bool) -> bool:
        """Note the parts of a tensor that are wrong on their own scale. Returns False if rounding cannot explain them.

        Elements whose errors are noted already count as right: one large error must not hide other wrong parts.
        """
        one, ours, theirs = self.exact[index], self.own[index], self.got[index]
        if index in self.unexplained:
            theirs = torch.where(self.unexplained[index] > 0, one.to(theirs.dtype), theirs)
        off = compare(Truth(one, ours), theirs, self.precision, "", local=True, fast=fast, slices=slices)
        if not isinstance(off, Mismatch):
            return True
        if not bool(torch.isfinite(one).all()):
            return False
        least = FLOORS[self.precision][spec(ours.real).dtype]
        floor = (found.tolerance or least) if fast else least
        slice_limit = LOCAL_FACTOR * least if slices else math.inf
        self.parts[index], self.rest[index] = surroundings(one, theirs, floor, slice_limit, fast=fast), theirs
        return True

    def _may_be_rounding(self, index: int, found: Mismatch) -> bool:
        """Note the errors of one tensor. Returns False if rounding cannot explain them."""
        one, ours, theirs = self.exact[index], self.own[index], self.got[index]
        if found.kind != "numerical" or not isinstance(ours, torch.Tensor):
            return False
        if not (ours.is_floating_point() or ours.is_complex()):
            self.chosen.append(index)
            return True
        if not torch.isfinite(one).all():
            return False
        errors = element_errors(one, theirs)
        right = errors <= (found.tolerance or 0.0)
        # rounding does not explain errors in a larger share of the elements, unless only one is wrong
        if index not in self.free and int((~right).sum()) > max(1, SHAKEN_SHARE * right.numel()):
            return False
        self.unexplained[index] = errors.masked_fill_(right, 0.0)
        return True

    def flip(self, index: int) -> bool:
        """Note where an index tensor differs from torch's. Returns False if too many indices differ, or if the program
        chose a position twice where torch chose distinct ones."""
        one, ours, theirs = self.exact[index], self.own[index], self.got[index]
        self.flipped[index] = (theirs != one.to(theirs.dtype)) & (theirs != ours)
        few = max(1, FLIPPED_SHARE * ours.numel())
        return int(self.flipped[index].sum()) <= few and not names_one_twice(ours, theirs)


def _traits_of(reference: Reference, inputs: Any) -> _Traits:
    """Return which operators of a reference round in a special way, found by one call on these inputs."""
    if reference not in _traits:
        record = _record(reference, reference.model, inputs)
        scale = _scale_of_given(reference) if record.factorizes else Scale.ELEMENT
        factored = _factored_leaves(reference, inputs, record.leaves) if record.factorizes else frozenset()
        exact = (*named_numbers(reference.instance), *numbers_of_module(reference.model))
        _traits[reference] = _Traits(record.convolves, record.factorizes, factored, scale, exact)
    return _traits[reference]


def any_share_may_be_off(reference: Reference, inputs: Any) -> bool:
    """Return whether rounding may excuse an output of which more than SHAKEN_SHARE of the elements are off."""
    return not reference.exact_is_fp64 or _traits_of(reference, inputs).factorizes


class _MovedFactors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of torch that changes every result of an operator that solves linear equations or factorizes matrices."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that the first call in this mode does not import dynamo."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return pytree.tree_map(_moved, result) if is_factorization(func._schema.name) else result


def _moved(leaf: Any) -> Any:
    if not _has_errors(leaf):
        return leaf
    # each element by another factor, so that a direction changes as well
    generator = torch.Generator(leaf.device).manual_seed(0)
    return leaf * (1 + MOVED_PART * torch.rand(leaf.shape, generator=generator, device=leaf.device)).to(leaf.dtype)


def _factored_leaves(reference: Reference, inputs: Any, own: list[Any]) -> frozenset[int]:
    """Return the numbers of the output tensors that change with the result of a factorization; all if the call
    fails."""
    every = frozenset(range(len(own)))
    try:
        with _MovedFactors():  # type: ignore[no-untyped-call]
            moved = pytree.tree_leaves(reference.own_result(cloned(inputs), copy.deepcopy(reference.model)))
    except ProblemError:
        return every
    if len(moved) != len(own):
        return every
    return frozenset(index for index in every if not same(own[index], moved[index]))


def _scale_of_given(reference: Reference) -> Scale:
    """Return what perturbations are relative to: rows and columns if their scales differ very much in the problem's own
    inputs, otherwise the whole matrix."""
    given = reference.instance.inputs(0)
    own = pytree.tree_leaves(reference.own_result(cloned(given), copy.deepcopy(reference.model)))

    def moved_by(scale: Scale) -> list[torch.Tensor]:
        most = [torch.zeros(()) for _ in own]
        for seed in range(SHAKES):
            try:
                result = reference.own_result(shaken(given, seed, scale), copy.deepcopy(reference.model))
            except ProblemError:
                continue
            for index, (one, other) in enumerate(zip(own, pytree.tree_leaves(result), strict=True)):
                if _has_errors(one) and one.shape == other.shape and bool(torch.isfinite(one).all()):
                    errors = element_errors(one, other).nan_to_num_(1.0, 1.0)
                    most[index] = torch.maximum(most[index].to(errors.device), _groups(errors, given).amax(dim=1))
        return most

    pairs = zip(moved_by(Scale.MATRIX), moved_by(Scale.ROW_AND_COLUMN), strict=True)
    unlike = any(bool(((whole > LOST) & (balanced < whole / MATRIX_OVER_ROWS)).any()) for whole, balanced in pairs)
    return Scale.ROW_AND_COLUMN if unlike else Scale.MATRIX


def _has_errors(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.numel() > 0 and (leaf.is_floating_point() or leaf.is_complex())


def _groups(errors: torch.Tensor, inputs: Any) -> torch.Tensor:
    """Return the errors with one row for each matrix of the inputs, if the output has the same leading dimensions."""
    shapes = [each.shape[:-2] for each in tensors_in(inputs) if _has_errors(each) and each.dim() >= 2]
    batch = max(shapes, key=len, default=())
    alike = list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(batch, errors.shape, strict=False)))
    return errors.reshape(math.prod(errors.shape[: len(alike)]), -1)


def _by_matrix(most: torch.Tensor, inputs: Any, *, by_slice: bool) -> torch.Tensor:
    """Return the limits of a solution from how far each element changed. All elements of one matrix get the same limit.

    A matrix with few elements may have changed little by chance, so its limit is at least the median. A
    nearly singular matrix has no limit, unless `by_slice` is given, which is so on the problem's own inputs. Then the
    limit of an element is SINGULAR_FACTOR times the largest change in its row or in its column, whichever is smaller.
    So columns that are well determined, such as the first principal components, stay judged beside others that are not.
    """
    groups = _groups(most, inputs)
    each = groups.amax(dim=1, keepdim=True)
    usual = min(float(each.median()), SINGULAR)
    singular = torch.full_like(each, math.inf)
    if by_slice:
        singular = SINGULAR_FACTOR * _groups(_least_of_slices(most, len(groups)), inputs)
    limits = torch.where(each > SINGULAR, singular, each).clamp(min=usual)
    return limits.expand(groups.shape).reshape(most.shape)


def _least_of_slices(most: torch.Tensor, count: int) -> torch.Tensor:
    """Return for each element the least of the largest changes in its slices, one slice along each dimension.

    `count` is the number of matrices, which are along the first dimensions.
    """
    inner = most.shape
    while inner and math.prod(inner) * count > most.numel():
        inner = inner[1:]
    inner = inner or torch.Size((1,))  # one number for each matrix, such as a determinant
    groups = most.reshape(count, *inner)
    least = groups.flatten(1).amax(dim=1).reshape(count, *[1] * len(inner)).expand(groups.shape)
    for dim in range(1, groups.dim()):
        others = [each for each in range(1, groups.dim()) if each != dim]
        if others:
            least = torch.minimum(least, groups.amax(dim=others, keepdim=True))
    return least.reshape(most.shape)


def _record(reference: Reference, model: torch.nn.Module, inputs: Any) -> RecordedIndices:
    """Return what is recorded in a call of a copy of the module, because a call may change buffers."""
    return recorded(lambda: reference.own_result(inputs, copy.deepcopy(model)))


def _errors_are_torchs(reference: Reference, truth: Truth, leaves: _Leaves, *, by_slice: bool) -> bool:
    """Return whether torch on perturbed inputs has errors as large as the program's; `by_slice` as in `_by_matrix`."""
    allowed = {
        index: element_errors(leaves.exact[index], leaves.own[index]).nan_to_num_(0.0, 0.0)
        for index in leaves.unexplained
    }
    limits = {index: _limits(parts, leaves.own[index]) for index, parts in leaves.parts.items()}
    for result in _shaken_results(reference, truth, SHAKES if allowed or limits else 0):
        for index, most in allowed.items():
            if result[index].shape == most.shape:
                torch.maximum(most, element_errors(leaves.exact[index], result[index]).nan_to_num_(0.0, 0.0), out=most)
        for index, most in limits.items():
            if result[index].shape == leaves.own[index].shape:
                torch.maximum(most, ERROR_FACTOR * leaves.parts[index].errors(result[index]), out=most)
    traits = _traits_of(reference, truth.inputs)
    if traits.factorizes:
        for index in traits.factored & allowed.keys():
            allowed[index] = _by_matrix(allowed[index], truth.inputs, by_slice=by_slice)
    anywhere = not reference.exact_is_fp64
    return all(
        _explained(errors, allowed[index], anywhere=anywhere) for index, errors in leaves.unexplained.items()
    ) and all(bool((parts.errors(leaves.rest[index]) <= limits[index]).all()) for index, parts in leaves.parts.items())


def _explained(errors: torch.Tensor, moved: torch.Tensor, *, anywhere: bool) -> bool:
    """Return whether no element is off by more than ERROR_FACTOR times what rounding changes it by.

    With `anywhere`, it is enough that rounding changes as many other elements as much: the largest error is compared
    with the largest change, the second with the second, and so on.
    """
    limits = ERROR_FACTOR * moved
    if bool((errors <= limits).all()):
        return True
    return anywhere and bool((errors.flatten().sort().values <= limits.flatten().sort().values).all())


def _limits(parts: Surroundings, own: torch.Tensor) -> torch.Tensor:
    """Return the errors that parts of an output may have, given torch's own errors there."""
    return torch.maximum(parts.limits, ERROR_FACTOR * parts.errors(own))


def _flips_are_torchs(reference: Reference, truth: Truth, leaves: _Leaves) -> bool:
    """Return whether torch on perturbed inputs gives each of the program's differing indices at its position."""
    flipped = leaves.flipped
    for result in _shaken_results(reference, truth, FLIP_SHAKES if flipped else 0):
        for index, off in flipped.items():
            if result[index].shape == off.shape:
                off &= result[index] != leaves.got[index]
        if not any(bool(off.any()) for off in flipped.values()):
            return True
    return not flipped


def _shaken_results(reference: Reference, truth: Truth, times: int) -> Iterator[list[Any]]:
    """Yield the results of torch on perturbed inputs."""
    # a call might still change buffers
    model = copy.deepcopy(reference.model) if times and list(reference.model.buffers()) else reference.model
    traits = _traits_of(reference, truth.inputs)
    for seed in range(times):
        moved = shaken(truth.inputs, seed, traits.scale, exact=traits.exact)
        try:
            with RoundedConvolutions(seed) if traits.convolves else nullcontext():
                result = reference.own_result(moved, model)
        except ProblemError:  # near the edge of a module's domain there may be no result
            continue
        yield pytree.tree_leaves(result)

"""Finds outputs that overflow in torch's result but not in double precision. Programs are not judged by them. (torch)

There torch has lost what double precision still holds. Or a product that is infinite in double precision is NaN in
torch, because a factor has become zero there. Each tensor of an output is examined separately, so that an overflow in
one tensor does not hide an error in another. In a tensor that overflows, slices along a dimension are still judged if
no number in them overflows or is near to it (`clean_slices`), for example if a module stacks a softmax and a power.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.comparison.comparison import element_errors, ordered_like
from kforge.evaluation.constants import FLOORS, SHAKEN_SHARE
from kforge.problems.tensors import spec, tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.evaluation.comparison.comparison import Truth

NEAR = "half"
"""Beside an overflow, torch's own result must be within this precision's floor; otherwise a tensor is not judged."""


def overflows(truth: Truth, precision: str) -> bool:
    """Return whether a tensor of the output overflows, or an input is outside the range of the declared precision."""
    return _has_inputs_beyond(truth, precision) or any(_overflowing(truth, precision))


def unjudged(truth: Truth, precision: str) -> list[bool]:
    """Return for each leaf of the output whether programs are not judged by it.

    That holds for tensors that overflow. Beside such a tensor, it also holds for tensors in which torch itself is far
    off, because they may depend on the overflow. If inputs are outside the range of the declared precision, it holds
    for all.
    """
    found = _overflowing(truth, precision)
    if _has_inputs_beyond(truth, precision):
        return [True] * len(found)
    if not any(found):
        return found
    leaves = zip(found, *(pytree.tree_leaves(each) for each in (truth.exact, truth.own)), strict=True)
    return [overflow or not _is_near(exact, own) for overflow, exact, own in leaves]


def spared(truth: Truth, output: Any, precision: str) -> Any:
    """Return the output with every unjudged tensor replaced by the right one, if it has the right shape and dtype."""
    leaves, form = pytree.tree_flatten(ordered_like(truth.own, output))
    exact, own = (pytree.tree_leaves(each) for each in (truth.exact, truth.own))
    if len(leaves) != len(own):
        return output
    for place, free in enumerate(unjudged(truth, precision)):
        if free and _is_like(own[place], leaves[place]):
            leaves[place] = exact[place].to(own[place].dtype)
    return pytree.tree_unflatten(leaves, form)


def where_finite(truth: Truth, output: Any, kept: list[Any] | None = None) -> Any:
    """Return the output with torch's own numbers wherever neither torch's result nor the double-precision one is
    finite.

    A reference may overflow because of the way in which it computes (the logarithm of a sum of exponentials). A program
    that computes in a stable way has a result there, and must not fail for it. `kept` has a mask for each leaf of the
    output, or None: there the output stays as it is.
    """
    leaves, form = pytree.tree_flatten(ordered_like(truth.own, output))
    exact, own = (pytree.tree_leaves(each) for each in (truth.exact, truth.own))
    if len(leaves) != len(own):
        return output
    for place, ours in enumerate(own):
        if isinstance(ours, torch.Tensor) and ours.is_floating_point() and _is_like(ours, leaves[place]):
            nowhere = ~(ours.isfinite() | exact[place].isfinite())
            if kept is not None and kept[place] is not None:
                nowhere &= ~kept[place]
            leaves[place] = torch.where(nowhere, ours, leaves[place])
    return pytree.tree_unflatten(leaves, form)


def cannot_judge(truth: Truth, precision: str) -> bool:
    """Return whether no tensor of the output, and no slice of one, can judge a program."""
    return all(unjudged(truth, precision)) and not any(True for _ in clean_slices(truth, truth.own, precision))


def slices_are_right(truth: Truth, output: Any, precision: str) -> bool:
    """Return whether the clean slices of an output are finite and near to the right result, except for a few numbers.

    A few may be off: beside an overflow, partial products may leave the number range in one order and not in another.
    """
    for exact, got in clean_slices(truth, output, precision):
        # an infinite or NaN error is not within the floor, so it counts as off
        off = ~(element_errors(exact, got) <= FLOORS[NEAR][spec(got.real).dtype])
        if float(off.double().mean()) > SHAKEN_SHARE:
            return False
    return True


def clean_slices(truth: Truth, output: Any, precision: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield pairs of the right result and the output, for those slices of overflowing tensors that have no very large
    numbers.

    Torch's own result must be near to the right one there; otherwise the slices may depend on the overflow.
    """
    got = pytree.tree_leaves(ordered_like(truth.own, output))
    exact, own = (pytree.tree_leaves(each) for each in (truth.exact, truth.own))
    if len(got) != len(own) or _has_inputs_beyond(truth, precision):
        return
    for one, ours, theirs, overflow in zip(exact, own, got, _overflowing(truth, precision), strict=True):
        chosen = _clean(one, ours, precision) if overflow and _is_like(ours, theirs) else None
        if chosen is not None:
            dim, places = chosen
            yield one.index_select(dim, places), theirs.index_select(dim, places)


def _clean(exact: torch.Tensor, own: torch.Tensor, precision: str) -> tuple[int, torch.Tensor] | None:
    """Find the dimension of an overflowing tensor with the largest share of slices without very large numbers.

    Returns the dimension and the positions of these slices; None if there are none.
    """
    half = precision == "half" and own.is_floating_point()
    limit = math.sqrt(torch.finfo(torch.float16 if half else own.dtype).max)
    ordinary = exact.isfinite() & own.isfinite() & (exact.abs() <= limit)
    best: tuple[int, torch.Tensor] | None = None
    for dim in range(exact.dim()):
        others = [each for each in range(exact.dim()) if each != dim]
        places = (ordinary.all(dim=others) if others else ordinary).nonzero().flatten()
        share, most = (len(places) / exact.shape[dim], 0.0 if best is None else len(best[1]) / exact.shape[best[0]])
        if share > most and _is_near(exact.index_select(dim, places), own.index_select(dim, places)):
            best = dim, places
    return best


def _overflowing(truth: Truth, precision: str) -> list[bool]:
    """Return for each tensor (or other value) of the output whether it overflows in torch but not in double
    precision."""
    pairs = zip(*(pytree.tree_leaves(each) for each in (truth.exact, truth.own)), strict=True)
    return [isinstance(own, torch.Tensor) and _overflow(exact, own, precision) for exact, own in pairs]


def _overflow(exact: torch.Tensor, own: torch.Tensor, precision: str) -> bool:
    """Return whether double precision and torch's result differ in where they are finite, infinite or NaN."""
    if not (own.is_floating_point() or own.is_complex()) or exact.shape != own.shape:
        return False
    if precision == "half" and _leaves_half(exact):
        return True
    # the sum is infinite or NaN if any number is, and computing a sum is quick
    if bool(torch.isfinite(own.sum())) and bool(torch.isfinite(exact.sum())):
        return False
    unlike = (exact.isnan() != own.isnan()) | (exact.isfinite() != own.isfinite())
    if not own.is_complex():
        unlike |= exact.isinf() & own.isinf() & (exact.sign() != own.sign())
    return bool(unlike.any())


def _has_inputs_beyond(truth: Truth, precision: str) -> bool:
    """Return whether the declared precision is half, and an input overflows float16."""
    return precision == "half" and any(map(_leaves_half, tensors_in(truth.inputs)))


def _leaves_half(tensor: torch.Tensor) -> bool:
    """Return whether a finite element overflows float16."""
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    finite = tensor.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return float(torch.linalg.vector_norm(finite, ord=math.inf)) > torch.finfo(torch.float16).max


def _is_near(exact: Any, own: Any) -> bool:
    """Return whether torch's own result is near to the double-precision one, wherever the latter is finite."""
    if not isinstance(own, torch.Tensor) or not own.numel():
        return True
    if not (own.is_floating_point() or own.is_complex()) or exact.shape != own.shape:
        return torch.equal(exact.to(own.dtype), own)
    odd = ~exact.isfinite()
    apart = element_errors(exact.masked_fill(odd, 0.0), own.masked_fill(odd, 0.0))
    return float(apart.max()) <= FLOORS[NEAR][spec(own.real).dtype]


def _is_like(own: torch.Tensor, got: Any) -> bool:
    return isinstance(got, torch.Tensor) and got.shape == own.shape and got.dtype == own.dtype

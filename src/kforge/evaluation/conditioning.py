"""How far an output may be off because of its inputs: torch's own results for inputs rounded otherwise. (torch)

Torch's error on a case, by which a program is judged, is one draw of what it could have been. Where a problem amplifies
rounding (a softmax of scores in the hundred thousands), another program that is as careful draws another one, and
torch's own fused attention was refused for one element in a hundred thousand. So before an output is called wrong,
torch is asked again, with every input moved by a few units in its last place, as much as a sum of some dozens rounds:
what that changes, no program can be blamed for.

An index output (the nearest of some thousand codes) has no error that could be amplified: where two values are as good
as equal, rounding decides. There an answer is accepted only where torch itself gives just that one, in that place, for
inputs that near. So nothing is to be had but what torch answers, too: who computes with fewer bits, or leaves something
out, is off in far more places, and in most of them torch never agrees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.constants import (
    ERROR_FACTOR,
    FLIP_SHAKES,
    FLIPPED_SHARE,
    SHAKEN_SHARE,
    SHAKEN_UNITS,
    SHAKES,
)
from kforge.evaluation.indices import names_one_twice
from kforge.evaluation.verify import Truth, compare, element_errors
from kforge.records import Mismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.evaluation.reference import Reference


def excused(reference: Reference, truth: Truth, output: Any, precision: str) -> bool:
    """Whether torch itself is as far off for inputs close to these, in each of the few elements that are off."""
    if list(reference.model.buffers()):  # which another call might change
        return False
    exact, own, got = (pytree.tree_leaves(tree) for tree in (truth.exact, truth.own, output))
    if len(own) != len(got):  # beside what is off in numbers, something is missing
        return False
    unexplained: dict[int, torch.Tensor] = {}
    flipped: dict[int, torch.Tensor] = {}
    for index, (one, ours, theirs) in enumerate(zip(exact, own, got, strict=True)):
        found = compare(Truth(one, ours, truth.inputs), theirs, precision, "")
        if not isinstance(found, Mismatch):
            continue
        if found.kind != "numerical" or not isinstance(ours, torch.Tensor):
            return False
        if ours.dtype == torch.int64:
            flipped[index] = (theirs != one.to(theirs.dtype)) & (theirs != ours)
            few = max(1, FLIPPED_SHARE * ours.numel())
            if int(flipped[index].sum()) > few or names_one_twice(ours, theirs):
                return False
            continue
        if not ours.is_floating_point() or not torch.isfinite(one).all():
            return False
        errors = element_errors(one, theirs)
        right = errors <= (found.tolerance or 0.0)
        if float((~right).double().mean()) > SHAKEN_SHARE:  # then it is no matter of rounding
            return False
        unexplained[index] = errors.masked_fill_(right, 0.0)
    return _errors_are_torchs(reference, truth, exact, unexplained) and _flips_are_torchs(
        reference, truth, got, flipped
    )


def _errors_are_torchs(
    reference: Reference, truth: Truth, exact: list[Any], unexplained: dict[int, torch.Tensor]
) -> bool:
    allowed = {index: torch.zeros_like(errors) for index, errors in unexplained.items()}
    for shaken in _shaken_results(reference, truth, SHAKES if allowed else 0):
        for index, most in allowed.items():
            if shaken[index].shape == most.shape:
                torch.maximum(most, element_errors(exact[index], shaken[index]).nan_to_num_(0.0, 0.0), out=most)
    return all(bool((errors <= ERROR_FACTOR * allowed[index]).all()) for index, errors in unexplained.items())


def _flips_are_torchs(reference: Reference, truth: Truth, got: list[Any], flipped: dict[int, torch.Tensor]) -> bool:
    for shaken in _shaken_results(reference, truth, FLIP_SHAKES if flipped else 0):
        for index, off in flipped.items():
            if shaken[index].shape == off.shape:
                off &= shaken[index] != got[index]
        if not any(bool(off.any()) for off in flipped.values()):
            return True
    return not flipped


def _shaken_results(reference: Reference, truth: Truth, times: int) -> Iterator[list[Any]]:
    for seed in range(times):
        try:
            result = reference.own_result(_shaken(truth.inputs, seed))
        except ProblemError:  # beside the edge of a module's domain there may be no result
            continue
        yield pytree.tree_leaves(result)


def _shaken(inputs: Any, seed: int) -> list[Any]:
    """Every number by up to SHAKEN_UNITS in its last place, up or down; zero stays zero."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
        generator = torch.Generator(leaf.device).manual_seed(seed)
        units = 2 * torch.rand(leaf.shape, generator=generator, device=leaf.device) - 1
        eps = torch.finfo(leaf.dtype).eps
        return torch.addcmul(leaf, leaf, units.to(leaf.dtype), value=SHAKEN_UNITS * eps)

    moved: list[Any] = pytree.tree_map(move, list(inputs))
    return moved

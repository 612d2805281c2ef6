"""Measures how much torch's own results for the same inputs vary: no program need be steadier than that. (torch)

Atomic additions come in no fixed order, so torch's `index_put_` with `accumulate` gives other last digits in every
call. A copy of the reference is as unsteady. This concerns only how far two outputs for the same inputs may differ from
each other; the error of each single output is still limited by the usual tolerance.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation.comparison.comparison import element_errors
from kforge.evaluation.protocol import UNSTEADY_FACTOR, UNSTEADY_RUNS
from kforge.problems.tensors import cloned, spec, tensors_in

if TYPE_CHECKING:
    from kforge.evaluation.reference.reference import Reference


def found_as_unsteady(reference: Reference, inputs: list[Any], one: Any, other: Any, limit: float) -> bool:
    """Return whether two outputs for the same inputs differ by at most the limit, or by little more than torch's own
    do.

    Each tensor is compared by itself; for integers the share of elements that differ counts.
    """
    pairs = list(zip(tensors_in(one), tensors_in(other), strict=False))
    if [spec(tensor) for tensor in tensors_in(one)] != [spec(tensor) for tensor in tensors_in(other)]:
        return False
    found = [apart(*pair) for pair in pairs]
    allowed = [limit if pair[0].is_floating_point() else 0.0 for pair in pairs]
    first: list[torch.Tensor] = []
    for _ in range(UNSTEADY_RUNS):
        result = tensors_in(_own_result(reference, inputs))
        first = first or result
        if [spec(tensor) for tensor in result] != [spec(tensor) for tensor in tensors_in(one)]:
            return False
        spread = (UNSTEADY_FACTOR * apart(*pair) for pair in zip(first, result, strict=True))
        allowed = list(map(max, allowed, spread))
        if all(difference <= most for difference, most in zip(found, allowed, strict=True)):
            return True
    return False


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two tensors of equal shape and dtype, on the scale by which outputs are judged."""
    if not one.numel():
        return 0.0
    if one.is_complex():
        one, other = (torch.view_as_real(tensor.resolve_conj()) for tensor in (one, other))
    if not one.is_floating_point():
        return float((one != other).double().mean())
    odd = ~(torch.isfinite(one) & torch.isfinite(other))
    if not bool(((one == other) | (one.isnan() & other.isnan()))[odd].all()):
        return float("inf")
    return float(element_errors(*(tensor.masked_fill(odd, 0.0) for tensor in (one, other))).max())


def _own_result(reference: Reference, inputs: list[Any]) -> Any:
    """Return the result of a call that changes neither the inputs nor buffers."""
    model = copy.deepcopy(reference.model) if reference.has_history else reference.model
    return reference.own_result(cloned(inputs) if reference.mutates_inputs else inputs, model)

"""Checks that a repeated call gives the same output, as far as torch's own repeated results agree. (torch)

Atomic additions have no fixed order, so torch's `index_put_` with `accumulate` gives other last digits in every call. A
program need not be more reproducible than the reference. This concerns only the difference between two outputs for the
same inputs. The error of each single output is still limited by the usual tolerance.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation.comparison.comparison import Agreement, Truth, compare, element_errors
from kforge.evaluation.constants import DETERMINISM_SHARE, UNSTEADY_FACTOR, UNSTEADY_RUNS
from kforge.evaluation.correctness.case import Case
from kforge.evaluation.large_problems.piecewise import Kept
from kforge.evaluation.worker_client.client import Fault
from kforge.problems.tensors import cloned, same, spec, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from kforge.evaluation.correctness.weight_changes import Handover
    from kforge.evaluation.reference.reference import Reference

FORGETTING_SHARE = DETERMINISM_SHARE / 2
"""If the reference's results for the same inputs differ by more than this share of the tolerance, earlier calls
matter."""


def own_result_now(reference: Reference, case: Case) -> Any:
    """Return the reference's output for a case in its present state, without changing that state."""
    reference.seed = case.seed
    return reference.own_result(cloned(case.inputs), copy.deepcopy(reference.model))


def forgets(reference: Reference, case: Case, earlier: Any, precision: str) -> bool:
    """Return whether a reference whose state changes still gives (nearly) the same result for these inputs as
    earlier."""
    found = compare(Truth(earlier, earlier), own_result_now(reference, case), precision, case.name)
    return isinstance(found, Agreement) and found.error <= FORGETTING_SHARE * found.tolerance


def must_be_deterministic(handover: Handover, case: Case, earlier: Any, tolerance: float) -> bool:
    """Call the program again on the inputs of an earlier output. Returns whether the output is exactly the same.

    Raises Fault if the two outputs differ by more than a share of the tolerance, and by more than torch's own results
    do.
    """
    if isinstance(earlier, Kept):
        case.inputs[:] = placed = handover.client.place(case.inputs)
        again = handover.client.call(placed).value
        if earlier.is_still(again):
            return True
        # one piece shows how far they are apart
        again, inputs = earlier.cut.output(again, *earlier.bounds), earlier.cut.inputs(case.inputs, *earlier.bounds)
        case, earlier = Case(case.name, inputs), earlier.part
    else:
        again = handover.client.call(case.inputs, seed=case.seed).value
    if same(earlier, again):
        return True
    found = compare(Truth(earlier, earlier), again, handover.precision, f"{case.name}, repeated")
    limit = DETERMINISM_SHARE * max(tolerance, found.tolerance or 0.0)
    if isinstance(found, Agreement) and found.error <= limit:
        return False
    if found_as_unsteady(handover.reference, case.inputs, earlier, again, limit):
        return False
    reason = (
        "repeated calls on the same inputs give outputs that differ by more than a quarter of the tolerance, "
        f"and by more than {UNSTEADY_FACTOR:g} times as much as torch's own outputs"
    )
    raise Fault(Mismatch(kind="numerical", reason=reason, case=case.name))


def found_as_unsteady(reference: Reference, inputs: list[Any], one: Any, other: Any, limit: float) -> bool:
    """Return whether two outputs for the same inputs differ by at most the limit, or by UNSTEADY_FACTOR times what
    torch's own results differ by.

    Each tensor is compared separately. For integers, the share of different elements counts.
    """
    pairs = list(zip(tensors_in(one), tensors_in(other), strict=False))
    if [spec(tensor) for tensor in tensors_in(one)] != [spec(tensor) for tensor in tensors_in(other)]:
        return False
    found = [apart(*pair) for pair in pairs]
    allowed = [limit if pair[0].is_floating_point() else 0.0 for pair in pairs]
    first: list[torch.Tensor] = []
    for _ in range(UNSTEADY_RUNS):
        result = tensors_in(own_result_of(reference, inputs))
        first = first or result
        if [spec(tensor) for tensor in result] != [spec(tensor) for tensor in tensors_in(one)]:
            return False
        spread = (UNSTEADY_FACTOR * apart(*pair) for pair in zip(first, result, strict=True))
        allowed = list(map(max, allowed, spread))
        if all(difference <= most for difference, most in zip(found, allowed, strict=True)):
            return True
    return False


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of two tensors of equal shape and dtype, relative to the scale by which outputs are
    judged.

    For integers and masks, it is the share of different elements. It is infinite if infinite or NaN elements differ.
    """
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


def own_result_of(reference: Reference, inputs: list[Any]) -> Any:
    """Return the reference's output, without changing the inputs or the module."""
    model = copy.deepcopy(reference.model) if reference.has_history else reference.model
    return reference.own_result(cloned(inputs) if reference.mutates_inputs else inputs, model)

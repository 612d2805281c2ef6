"""Checks the side effects of calls: views of inputs, writes to inputs and to state, changed settings of torch.
(torch)

They are compared with the reference's.

In timed calls the baseline is the standard: it is the reference on the same inputs. So it shows whether an output may
be a view of an input, and what inputs must hold after the call.

What a call writes is compared in two ways: the written tensor, and its change. A small step of an optimizer is smaller
than the tolerance of the tensor, so a program could leave it out undetected. Only elements that change by more than
their own rounding can prove that.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation.comparison.comparison import Truth, compare
from kforge.evaluation.constants import COMPARABLE, COMPARED_CALLS, ERROR_FACTOR, FLOORS, LOCAL_FACTOR
from kforge.evaluation.large_problems.piecewise import Kept
from kforge.evaluation.transport.aliases import UNDUE_VIEW, tensor_leaves
from kforge.evaluation.worker.caller_settings import GENERATOR, settings
from kforge.evaluation.worker_client.client import Fault
from kforge.problems.tensors import same, spec, tensors_in
from kforge.records import Mismatch, Rejected

if TYPE_CHECKING:
    from kforge.evaluation.reference.reference import Reference
    from kforge.evaluation.worker_client.client import Output, WorkerClient

UNDUE_WRITE = "the program modifies an input that the reference leaves as it was"
"""Reason of a rejection, as users read it."""
UNTOUCHED_SHARE, LEFT_SHARE = 1e-3, 0.5
"""If the reference certainly changes more than UNTOUCHED_SHARE of a tensor's elements, and a program leaves more than
LEFT_SHARE of these exactly as they were, the program is wrong."""
CHANGED_UNITS, COMPARED_UNITS = 0.5, 2.0
"""By how many epsilons one call must change an element: CHANGED_UNITS so that it counts as changed, COMPARED_UNITS so
that its change is compared."""
UNITS_OF_MANY_CALLS = 64.0
"""By how many epsilons an unknown number of calls must change an element so that it counts as changed. Each update
below half a unit may be lost in one formula and add up in another."""


def must_have_same_effects(
    candidate: WorkerClient, baseline: WorkerClient, index: int, precision: str, *, writes: bool
) -> Any | None:
    """Compare the side effects of call `index` in the last blocks of both sides. Raises Fault if they clearly differ.

    Returns the inputs as the candidate left them if they must be compared with the reference, because they differ from
    the baseline's by more than the tolerance. Otherwise returns None. `writes`: the reference is known to write to its
    inputs; if false, the baseline's inputs are examined only now and then.
    """
    aliases = candidate.block.aliases(index)
    if aliases and not aliases <= baseline.block.aliases(index):
        raise Fault(Rejected(rule="output_aliases_input", reason=f"{UNDUE_VIEW} (in a timed call)"))
    if not candidate.block.inputs_are_intact(index):
        if baseline.block.inputs_are_intact(index):
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} (in a timed call)"))
    elif (not writes and secrets.randbelow(COMPARED_CALLS)) or baseline.block.inputs_are_intact(index):
        return None
    (before, expected), (_, left) = baseline.block.inputs(index), candidate.block.inputs(index)
    must_leave_the_rest(before, expected, left, "in a timed call")
    found = compare(Truth(expected, expected), left, precision, "a timed call", "inputs after the call")
    if not isinstance(found, Mismatch):
        unlike = differently_changed(before, Truth(expected, expected), left, precision, "a timed call")
        return None if unlike is None else left
    if not (found.max_error or 0.0) <= COMPARABLE * (found.tolerance or 0.0):
        raise Fault(found)
    return left


def must_leave_the_rest(before: Any, expected: Any, left: Any, when: str) -> None:
    """Raise Fault if a program changes an input, even slightly, that the reference does not change."""
    for ours, theirs, given in zip(*map(tensors_in, (expected, left, before)), strict=True):
        if same(ours, given) and not same(theirs, given):
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} ({when})"))


def must_write_alike(before: Any, written: Truth, left: Any, precision: str, case: str) -> None:
    """Raise Fault if the program's inputs after the call differ from those that the reference leaves."""
    found = compare(written, left, precision, case, "inputs after the call")
    off = found if isinstance(found, Mismatch) else None
    if off := off or differently_changed(before, written, left, precision, case):
        raise Fault(off)


def must_keep_settings(output: Output, case: str) -> None:
    """Raise Fault if a call has changed settings of torch for its caller, unless the reference has set them alike.

    The worker says what has changed, so this catches honest mistakes only (`worker/caller_settings.py`).
    """
    with torch.no_grad():  # as the worker calls programs
        here = settings()  # the reference runs in this process
    changed = [row for row in output.changed_settings if here.get(row[0]) != row[2]]
    if not changed:
        return
    named = [name if name == GENERATOR else f"{name} from {before} to {now}" for name, before, now in changed]
    reason = f"the call changes what its caller has set for torch, and the reference does not: {', '.join(named)}"
    raise Fault(Mismatch(kind="settings", reason=reason, case=case))


def must_stay(earlier: Output, now: Any, reference: Reference) -> None:
    """Raise Fault if a later call has changed an earlier output. Views of inputs are left out, because they change with
    the inputs."""
    views = {number for number, _ in earlier.aliases}
    if isinstance(earlier.value, Kept):
        stays = earlier.value.is_still(now, but=views)
    else:
        left, found = (
            [leaf for number, leaf in enumerate(tensor_leaves(value)) if number not in views]
            for value in (earlier.value, now)
        )
        stays = same(left, found)
    if not stays:
        own = " (the reference returns a buffer that it updates: return a copy)"
        reason = "the output of an earlier call changed during a later one: its buffer is used again"
        raise Fault(Rejected(rule="output_reused", reason=reason + own * reference.overwrites_outputs))


def differently_changed(
    before: Any,
    written: Truth,
    left: Any,
    precision: str,
    case: str,
    *,
    place: str = "inputs after the call",
    calls: int = 1,
) -> Mismatch | None:
    """Return a Mismatch if a program's changes of tensors differ from the reference's, relative to these changes; else
    None.

    The rounding of a tensor may be larger than a small change of it. So the elements that change by more than their
    rounding are also judged separately. `calls` is how many calls made the change; each adds its rounding.
    """
    trees = map(tensors_in, (before, written.exact, written.own, left))
    for number, (given, exact, own, got) in enumerate(zip(*trees, strict=True)):
        if not (own.is_floating_point() or own.is_complex()) or got.shape != own.shape or same(own, given):
            continue
        floor = FLOORS[precision][spec(own.real).dtype]
        sure = surely_changed(given, exact, own, COMPARED_UNITS * calls)
        parts = [(given, exact, own, got)]
        if float(sure.double().mean()) > UNTOUCHED_SHARE:
            parts.append((given[sure], exact[sure], own[sure], got[sure]))
        untouched = left_as_it_was(given, surely_changed(given, exact, own, CHANGED_UNITS * calls), got)
        for part in parts:
            error, limit = _change_error(*part, floor, calls)
            if untouched or not error <= limit:
                reason = (
                    f"{place}: the change of tensor {number} differs from the reference's by {error:.3g} of its norm, "
                    f"over tolerance {limit:.3g}"
                )
                if untouched:
                    reason = f"{place}: tensor {number} is unchanged, but the reference changes it"
                return Mismatch(kind="numerical", reason=reason, case=case, max_error=error, tolerance=limit)
    return None


def surely_changed(given: torch.Tensor, exact: torch.Tensor, own: torch.Tensor, units: float) -> torch.Tensor:
    """Return where the reference changes a tensor by more than this many epsilons of the element."""
    change = (exact - given).abs()
    return (own != given) & (change > units * torch.finfo(own.dtype).eps * given.abs())


def left_as_it_was(given: torch.Tensor, changed: torch.Tensor, got: torch.Tensor) -> bool:
    """Return whether a program leaves most of the elements unchanged that the reference changes."""
    count = int(changed.sum())
    if count <= UNTOUCHED_SHARE * changed.numel():
        return False
    return int((changed & (got == given)).sum()) > LEFT_SHARE * count


def _change_error(
    given: torch.Tensor, exact: torch.Tensor, own: torch.Tensor, got: torch.Tensor, floor: float, calls: int
) -> tuple[float, float]:
    """Return the error of a change as a share of the change's norm, and the error that it may have."""
    wide = torch.complex128 if own.is_complex() else torch.float64
    tensors = [each.to(wide) for each in (given, exact, own, got)]
    odd = ~torch.stack([torch.isfinite(each) for each in tensors]).all(dim=0)  # judged with the whole tensor
    given, exact, own_wide, got = (each.masked_fill(odd, 0.0) for each in tensors)
    change, own_off, off, rounded = (
        float(torch.linalg.vector_norm(each)) for each in (exact - given, own_wide - exact, got - exact, own_wide)
    )
    if not change:
        return 0.0, 0.0
    rounding = calls * torch.finfo(own.dtype).eps / 4 * rounded
    return off / change, max(LOCAL_FACTOR * floor, ERROR_FACTOR * max(own_off, rounding) / change)

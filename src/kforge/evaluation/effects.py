"""What a timed call does besides its output: it may return views, and write, where the baseline does the same. (torch)

The baseline is the reference at the same inputs, so whether an output may be a view of an input, and how inputs are to
be left, is seen on its side of the same call.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from kforge.evaluation.aliases import UNDUE_VIEW
from kforge.evaluation.constants import COMPARABLE, COMPARED_CALLS
from kforge.evaluation.contestant import Fault
from kforge.evaluation.verify import Truth, compare
from kforge.problems.tensors import same, tensors_in
from kforge.records import Mismatch, Rejected

if TYPE_CHECKING:
    from kforge.evaluation.contestant import Contestant

UNDUE_WRITE = "the program modifies an input that the reference leaves as it was"


def must_have_same_effects(
    candidate: Contestant, baseline: Contestant, index: int, precision: str, *, writes: bool
) -> Any | None:
    """Compare what a call of both sides' last block did besides its output.

    Returns the inputs as the candidate left them where they differ from the baseline's by more than the tolerance, and
    so must be checked in full; else None. Raises Fault where the candidate did more, or less, than the baseline.
    `writes`: the reference was seen to write to its inputs. Any other one is looked at now and then.
    """
    aliases = candidate.block_aliases(index)
    if aliases and not aliases <= baseline.block_aliases(index):
        raise Fault(Rejected(rule="output_aliases_input", reason=f"{UNDUE_VIEW} (in a timed call)"))
    if not candidate.block_inputs_intact(index):
        if baseline.block_inputs_intact(index):
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} (in a timed call)"))
    elif (not writes and secrets.randbelow(COMPARED_CALLS)) or baseline.block_inputs_intact(index):
        return None
    (before, expected), (_, left) = baseline.block_inputs(index), candidate.block_inputs(index)
    must_leave_the_rest(before, expected, left, "in a timed call")
    found = compare(Truth(expected, expected), left, precision, "a timed call", "inputs after the call")
    if not isinstance(found, Mismatch):
        return None
    if not (found.max_error or 0.0) <= COMPARABLE * (found.tolerance or 0.0):
        raise Fault(found)
    return left


def must_leave_the_rest(before: Any, expected: Any, left: Any, when: str) -> None:
    """Raises Fault for a program that changes an input that the reference leaves as it was, by however little."""
    for ours, theirs, given in zip(*map(tensors_in, (expected, left, before)), strict=True):
        if same(ours, given) and not same(theirs, given):
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} ({when})"))

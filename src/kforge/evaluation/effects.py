"""What a timed call does besides its output: it may return views, and write, where the baseline does the same. (torch)

The baseline is the reference at the same inputs, so whether an output may be a view of an input, and how inputs are to
be left, is seen on its side of the same call.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from kforge.evaluation.aliases import UNDUE_VIEW
from kforge.evaluation.constants import COMPARABLE, COMPARED_CALLS
from kforge.evaluation.contestant import Fault
from kforge.evaluation.verify import Truth, compare
from kforge.records import Mismatch, Rejected

if TYPE_CHECKING:
    from kforge.evaluation.contestant import Contestant


def must_have_same_effects(candidate: Contestant, baseline: Contestant, index: int, precision: str) -> None:
    """Raises Fault where a call of the candidate's last block does more, or less, than the baseline's."""
    aliases = candidate.block_aliases(index)
    if aliases and not aliases <= baseline.block_aliases(index):
        raise Fault(Rejected(rule="output_aliases_input", reason=f"{UNDUE_VIEW} (in a timed call)"))
    if not candidate.block_inputs_intact(index):
        if baseline.block_inputs_intact(index):
            raise Fault(Rejected(rule="input_modified", reason="the program modifies its inputs in timed calls"))
    # a baseline that writes does so in most calls: it is looked at in one of those that are compared
    elif secrets.randbelow(COMPARED_CALLS) or baseline.block_inputs_intact(index):
        return
    expected, left = baseline.block_inputs(index), candidate.block_inputs(index)
    found = compare(Truth(expected, expected), left, precision, "a timed call", "inputs after the call")
    if isinstance(found, Mismatch) and not (found.max_error or 0.0) <= COMPARABLE * (found.tolerance or 0.0):
        raise Fault(found)

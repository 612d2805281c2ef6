"""Compares a program's outputs with the right ones within the tolerance, and keeps the worst error. (torch)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.comparison.comparison import Agreement, Truth, compare
from kforge.evaluation.comparison.overflow import where_finite
from kforge.evaluation.correctness.beyond_given_values import GROSS
from kforge.evaluation.correctness.rounding import excused
from kforge.evaluation.correctness.side_effects import must_leave_the_rest, must_write_alike
from kforge.evaluation.reference.written_constants import written_on_purpose
from kforge.evaluation.worker_client.client import Fault
from kforge.problems.inputs.other_ranges import is_beyond
from kforge.problems.tensors import all_finite

if TYPE_CHECKING:
    from kforge.evaluation.correctness.case import Case
    from kforge.evaluation.correctness.weight_changes import Handover
    from kforge.evaluation.large_problems.piecewise import Pieces
    from kforge.evaluation.worker_client.client import Output

TIMED_ALIKE = ("as_given", "odd_rows")
"""Names of cases whose inputs are like those of timed calls."""
ON_GIVEN_INPUTS = ("as_given", "a timed call", "a watched call")
"""Beginnings of the names of cases with the problem's own inputs. There each part of an output is also judged on its
own scale."""


class OutputCheck:
    """Compares the outputs of one program with the right ones. Methods raise Fault for a wrong output."""

    def __init__(self, handover: Handover) -> None:
        self._handover = handover
        self.precision = handover.precision
        self.worst = Agreement()
        """The error that came closest to its tolerance."""
        self.excused: list[str] = []
        """Labels that say why wrong elements were accepted (`rounding.py`)."""
        self.largest_tolerance = 0.0
        """Largest tolerance of cases with inputs like those of timed calls. It is used if no copy of the reference can
        compute the right result."""

    def must_agree(self, truth: Truth, output: Any, case: str) -> None:
        """Raise Fault if an output is wrong and nothing excuses it. `case` is the name of the case."""
        # in other cases a row may be small beside a large one: errors on the scale of the whole output are fair there
        local = case.startswith(ON_GIVEN_INPUTS)
        precision = GROSS if is_beyond(case) else self.precision
        found = compare(truth, output, precision, case, local=local)
        if is_beyond(case) and isinstance(found, Agreement):
            return
        if isinstance(found, Agreement):
            self.worst = self.worst.worse_of(found)
            if case.startswith(TIMED_ALIKE):
                self.largest_tolerance = max(self.largest_tolerance, found.tolerance)
            return
        reference = self._handover.reference
        why = excused(reference, truth, output, precision, local=local) if found.kind == "numerical" else None
        if why is None:
            raise Fault(found)
        if not is_beyond(case):
            self.excused.append(why)

    def agrees_where_finite(self, truth: Truth, output: Any, case: str, plain: Truth | None = None) -> bool:
        """Return whether an output is right wherever the right result, or torch's own, is finite.

        It must also be right where the reference writes an infinity or NaN on purpose, and where the result `plain` of
        ordinary inputs is not finite. Returns False if an input or a weight is not finite: then results that are not
        finite may be right, and a program must have them as well.
        """
        reference = self._handover.reference
        if not all(map(all_finite, (truth.inputs, reference.state()))):
            return False
        try:
            self.must_agree(
                truth, where_finite(truth, output), case
            )  # first, because it needs no call of the reference
            kept = _either(written_on_purpose(reference, truth), None if plain is None else odd_places(plain.own))
            self.must_agree(truth, where_finite(truth, output, kept), case)
        except Fault:
            return False
        return True

    def must_agree_in_pieces(self, pieces: Pieces, output: Any, case: str) -> None:
        """Compare one large output with the right one, piece by piece."""
        for truth, part in pieces.against(output):
            self.must_agree(truth, part, case)

    def must_change_inputs_alike(self, truth: Truth, output: Output, case: Case) -> None:
        """Compare what the program wrote into its inputs with what the reference writes, if the referee can see the
        inputs."""
        if truth.changed_inputs is None or not self._handover.client.access.sees:
            return
        left = case.inputs if output.changed_inputs is None else output.changed_inputs
        must_leave_the_rest(case.inputs, truth.changed_inputs.own, left, case.name)
        must_write_alike(case.inputs, truth.changed_inputs, left, self.precision, case.name)


def odd_places(result: Any) -> list[torch.Tensor | None]:
    """Return for each leaf of a result where it is infinite or NaN; None for leaves that are no floating-point
    tensors."""
    return [
        ~leaf.isfinite() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else None
        for leaf in pytree.tree_leaves(result)
    ]


def _either(one: list[torch.Tensor | None], other: list[torch.Tensor | None] | None) -> list[torch.Tensor | None]:
    """Return for each leaf where one of two masks is true. A mask of another shape is ignored."""
    if other is None or len(one) != len(other):
        return one
    return [
        mine
        if theirs is None or (mine is not None and mine.shape != theirs.shape)
        else theirs
        if mine is None
        else mine | theirs
        for mine, theirs in zip(one, other, strict=True)
    ]

"""Checks single timed calls in full: outputs, written inputs and state, against the reference or the baseline. (torch)

The right result of a call may depend on earlier calls, which the reference has not made. Then the baseline is the
standard, because it has made the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge.evaluation.comparison.overflow import overflows, spared
from kforge.evaluation.correctness.against_baseline import Beside
from kforge.evaluation.correctness.ordered_lookups import OrderedLookups
from kforge.evaluation.correctness.rounding import fails_nearby
from kforge.evaluation.correctness.side_effects import must_write_alike
from kforge.evaluation.large_problems.piecewise import Pieces
from kforge.evaluation.worker_client.client import Fault
from kforge.records import Mismatch

if TYPE_CHECKING:
    from kforge.evaluation.comparison.comparison import Truth
    from kforge.evaluation.correctness.check import CorrectnessCheck


class TimedOutputs:
    """Checks results of calls that a program makes after its correctness check. Methods raise Fault if a result is
    wrong."""

    def __init__(self, correctness: CorrectnessCheck) -> None:
        self._correctness = correctness
        self._precision = correctness.precision
        self._lookups = OrderedLookups(lambda: correctness.reference, correctness.source.sample)

    @property
    def in_sequence(self) -> bool:
        """Whether a call's result depends on earlier calls: on state, or on the random numbers that they drew."""
        return self._correctness.reference.has_history or self._correctness.instance.draws_random_numbers

    def must_be_right(self, inputs: list[Any], output: Any, case: str) -> None:
        """Compare an output with the reference. Does nothing if the result depends on earlier calls (see
        `must_be_alike`)."""
        if self.in_sequence:
            return  # the right result depends on calls that the reference has not made: see `must_be_alike`
        reference, outputs, cut = self._correctness.reference, self._correctness.outputs, self._correctness.cut
        if cut is not None:
            outputs.must_agree_in_pieces(Pieces(reference, cut, inputs, precision=self._precision), output, case)
            return
        truth = reference.truth(inputs)
        try:
            outputs.must_agree(truth, output, case)
        except Fault:
            defined = self._lookups.spared(truth, output)  # odd rows may break a sorted order
            if defined is not None:
                outputs.must_agree(truth, defined, case)
                return
            plain = self._correctness.source.without_odd_rows(inputs)
            if plain is not None and outputs.agrees_where_finite(truth, output, case, reference.truth(plain)):
                return
            if not self._overflows_for_odd_rows(truth):
                raise
            outputs.must_agree(truth, spared(truth, output, self._correctness.declared), case)

    def must_be_written_right(self, inputs: list[Any], left: Any, case: str) -> None:
        """Compare the inputs after a call (`left`) with what the reference writes into them."""
        written = self._correctness.reference.truth(inputs).changed_inputs
        if written is not None:
            must_write_alike(inputs, written, left, self._precision, case)

    def must_be_alike(self, expected: Any, output: Any, case: str, inputs: list[Any]) -> None:
        """Raise Fault if an output that depends on earlier calls differs from the baseline's."""
        most = self._correctness.outputs.largest_tolerance
        found = Beside(self._correctness.reference, inputs, self._precision, most).differs(expected, output, case)
        if found is not None:
            raise Fault(found)

    def must_leave_state_alike(self, expected: dict[str, Any], left: Any, case: str) -> None:
        """Raise Fault if the state after calls differs from the baseline's. Each entry has its own tolerance."""
        handover = self._correctness.handover
        for name, ours in expected.items():
            most = handover.tolerances.get(name, 0.0)
            theirs = left.get(name) if isinstance(left, dict) else None
            beside = Beside(self._correctness.reference, None, self._precision, most)
            found = beside.differs(ours, theirs, f"{case}: {name}")
            if found is not None:
                raise Fault(found)
            if handover.has_left_out(name, ours, theirs):
                reason = f"{name} of the state is unchanged, but the reference changes it"
                raise Fault(Mismatch(kind="numerical", reason=reason, case=case))

    def reference_fails(self) -> bool:
        """Return whether the reference fails for slight perturbations of any of the last timed inputs with odd rows."""
        sets = self._correctness.source.last_odd_sets()
        return any(fails_nearby(self._correctness.reference, inputs) for inputs in sets)

    def _overflows_for_odd_rows(self, truth: Truth) -> bool:
        """Return whether the reference overflows because of odd rows: on inputs as given it does not."""
        source, declared = self._correctness.source, self._correctness.declared
        if source.odd_rows is None or not overflows(truth, declared):
            return False
        return not overflows(self._correctness.reference.truth(source.as_given(0, 0).inputs), declared)

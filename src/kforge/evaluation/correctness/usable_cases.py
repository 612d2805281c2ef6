"""Decides whether a case can judge a program: the reference must take its inputs and be sure of the result. (torch)

No program is judged where the reference raises, where an index could ruin the device, or where torch itself overflows.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kforge.errors import ProblemError
from kforge.evaluation.comparison.overflow import judges_nobody, overflows
from kforge.evaluation.correctness.beyond_given_values import is_in_proportion, is_sound, looks_up
from kforge.evaluation.correctness.ordered_lookups import OrderedLookups
from kforge.evaluation.correctness.rounding import gives_alike
from kforge.evaluation.large_problems.pieces import holds_for
from kforge.problems.inputs.other_ranges import MINUTE, kind_of
from kforge.problems.randomness import generator_states
from kforge.problems.tensors import HOST, all_finite

if TYPE_CHECKING:
    from kforge.evaluation.comparison.comparison import Truth
    from kforge.evaluation.correctness.cases import Case, CaseSource
    from kforge.evaluation.correctness.weight_changes import Handover
    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.evaluation.large_problems.piecewise import Pieces
    from kforge.evaluation.reference.reference import Reference


class UsableCases:
    """Decides by which cases one program is judged."""

    def __init__(self, handover: Handover, source: CaseSource, declared: str) -> None:
        """`declared`: the precision that the program uses."""
        self._handover = handover
        self._source = source
        self._declared = declared
        self._lookups = OrderedLookups(lambda: handover.reference, source.sample)

    @property
    def _reference(self) -> Reference:
        return self._handover.reference

    def truth(self, case: Case) -> Truth | None:
        """Return the truth of a case; None where the reference itself cannot take these inputs."""
        if case.is_scaled and self._reference.has_history:  # otherwise its state would hold such numbers from then on
            return None
        if self._may_ruin_a_device(case) and not self._handover.takes_on_host(case.inputs):
            return None
        generators = generator_states()
        try:
            truth = self._reference.truth(case.inputs)
        except ProblemError:
            if case.is_as_given:
                raise
            case.group.refused = True
            return None
        if self._reference.seed is None and not case.is_as_given and generator_states() != generators:
            return None  # it is random only for such inputs: a rate of dropout that is zero as given
        if (case.is_discrete or case.is_beyond) and not all_finite(truth.exact):
            return None
        if case.alike is not None and not gives_alike(self._reference, truth, case.alike, self._handover.precision):
            return None
        if not truth.is_whole and self._declared != "half":  # whether torch overflows is asked only where it matters
            return truth
        return None if self.judges_nobody(case, truth) else truth

    def takes_pieces(self, case: Case, pieces: Pieces) -> bool:
        """Return whether the reference itself can take these large inputs, as its first piece shows."""
        if self._may_ruin_a_device(case):
            return False
        try:
            pieces.learn_form()
            return case.is_as_given or self._declared != "half" or not pieces.overflow(self._declared)
        except ProblemError:
            if case.is_as_given:
                raise
            case.group.refused = True
            return False

    def falls_apart(self, case: Case, cut: Cut) -> bool:
        """Return whether the cut, which was found on inputs as given, is valid for this case."""
        try:
            return holds_for(cut, self._reference.own_result, case.inputs)
        except ProblemError:  # the reference takes each piece, but not all of them together
            return False

    def overflows(self, case: Case, truth: Truth) -> bool:
        """Return whether torch overflows in this case, which inputs as given never excuse."""
        return not case.is_as_given and overflows(truth, self._declared)

    def is_undefined(self, case: Case) -> bool:
        """Return whether the reference looks numbers up among unsorted ones in this case."""
        return not case.is_as_given and self._lookups.are_undefined(case.inputs)

    def judges_nobody(self, case: Case, truth: Truth) -> bool:
        """Return whether torch overflows, and nothing beside that judges a program."""
        if not self.overflows(case, truth):
            return False
        # state and written inputs would hold such numbers as well
        return self._reference.has_history or truth.changed_inputs is not None or judges_nobody(truth, self._declared)

    def is_sure(self, case: Case, truth: Truth) -> bool:
        """Return whether the reference is sure of a result beyond the given values."""
        if kind_of(case.name) == MINUTE and not is_in_proportion(self._reference, truth):
            return False
        return is_sound(self._reference, truth, self._handover.precision)

    def _may_ruin_a_device(self, case: Case) -> bool:
        if self._handover.instance.device == HOST:
            return False
        return case.risky or (case.is_beyond and self._looks_up)

    @cached_property
    def _looks_up(self) -> bool:
        return looks_up(self._reference, self._source.sample())

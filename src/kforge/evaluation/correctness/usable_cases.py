"""Decides whether a case can judge a program: the reference must accept its inputs and be reliable there. (torch)

A case is dropped if the reference raises, if an index could break the device's context, or if torch itself overflows.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Truth
from kforge.evaluation.comparison.overflow import cannot_judge, overflows
from kforge.evaluation.correctness.beyond_given_values import (
    is_in_proportion,
    is_sound,
    limits_cross,
    looks_up,
    spared_where_unreliable,
    unreliable,
)
from kforge.evaluation.correctness.ordered_lookups import OrderedLookups
from kforge.evaluation.correctness.output_check import odd_places
from kforge.evaluation.correctness.rounding import gives_alike
from kforge.evaluation.correctness.steadiness import own_result_of
from kforge.evaluation.large_problems.pieces import holds_for
from kforge.problems.inputs.other_ranges import MINUTE, kind_of
from kforge.problems.inputs.scalars import NEGATED
from kforge.problems.randomness import generator_states, undisturbed
from kforge.problems.tensors import HOST, all_finite

if TYPE_CHECKING:
    import torch

    from kforge.evaluation.correctness.case import Case
    from kforge.evaluation.correctness.cases import CaseSource
    from kforge.evaluation.correctness.weight_changes import Handover
    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.evaluation.large_problems.piecewise import Pieces
    from kforge.evaluation.reference.reference import Reference


class UsableCases:
    """Decides which cases can judge one program."""

    def __init__(self, handover: Handover, source: CaseSource, declared: str) -> None:
        """`declared` is the precision that the program may compute in."""
        self._handover = handover
        self._source = source
        self._declared = declared
        self._lookups = OrderedLookups(lambda: handover.reference, source.sample)

    @property
    def _reference(self) -> Reference:
        return self._handover.reference

    def truth(self, case: Case) -> Truth | None:
        """Return the right result of a case; None if the case must be dropped. Raises ProblemError for inputs as
        given."""
        if case.is_scaled and self._reference.has_history:  # otherwise extreme numbers would stay in its state
            return None
        if self._may_ruin_a_device(case) and not self._handover.takes_on_host(case.inputs):
            return None
        try:
            truth, is_random = self._truth(case)
        except ProblemError:
            if case.is_as_given:
                raise
            case.group.refused = True
            return None
        if is_random:
            return None
        if case.must_be_finite and not self._is_as_finite_as_given(truth):
            return None
        if case.alike is not None and not gives_alike(self._reference, truth, case.alike, self._handover.precision):
            return None
        if not truth.is_whole and self._declared != "half":  # saves computing torch's own result here
            return truth
        return None if self.cannot_judge(case, truth) else truth

    def _truth(self, case: Case) -> tuple[Truth, bool]:
        """Return the right result, and whether the reference draws random numbers only for these Python numbers.

        Examples are a dropout rate that is zero as given, and a flag for training.
        """
        if self._reference.seed is not None or not case.scalars:
            return self._reference.truth(case.inputs), False
        with undisturbed():  # a thread draws the inputs of the next case
            before = generator_states()
            truth = self._reference.truth(case.inputs)
            return truth, generator_states() != before

    def takes(self, case: Case) -> bool:
        """Return whether the reference accepts these inputs, and its own result is finite where it is for inputs as
        given. Its state and the inputs stay unchanged."""
        if self._may_ruin_a_device(case) and not self._handover.takes_on_host(case.inputs):
            return False
        try:
            own = own_result_of(self._reference, case.inputs)
        except ProblemError:
            return False
        return self._is_as_finite_as_given(Truth(own, own))

    def _is_as_finite_as_given(self, truth: Truth) -> bool:
        """Return whether the right result is finite, except where it is not finite for inputs as given either."""
        if all_finite(truth.exact):
            return True
        given, now = self._odd_as_given, odd_places(truth.exact)
        if len(given) != len(now):
            return False
        both = [(odd, usual) for odd, usual in zip(now, given, strict=True) if odd is not None and usual is not None]
        return all(odd.shape == usual.shape and not bool((odd & ~usual).any()) for odd, usual in both)

    @cached_property
    def _odd_as_given(self) -> list[torch.Tensor | None]:
        """Where the right result of inputs as given is infinite or NaN, for each leaf."""
        given = self._reference.truth_of_copies(self._source.sample())
        return [] if given is None else odd_places(given.exact)

    def takes_pieces(self, case: Case, pieces: Pieces) -> bool:
        """Return whether these large inputs can judge a program.

        Of inputs as given, the reference must accept a piece. Other inputs are tried as a whole, see `falls_apart`;
        under the declared precision half, none of their pieces may overflow. Raises ProblemError for inputs as given.
        """
        if self._may_ruin_a_device(case):
            return False
        try:
            if case.is_as_given or not self._reference.output_bytes:
                pieces.learn_form()
            return case.is_as_given or self._declared != "half" or not pieces.overflow(self._declared)
        except ProblemError:
            if case.is_as_given:
                raise
            case.group.refused = True
            return False

    def falls_apart(self, case: Case, cut: Cut) -> bool | None:
        """Return whether the samples of this case are independent, so that it can be cut in the same way as inputs as
        given; None if the case must be dropped, because the reference does not accept its inputs."""
        try:
            return holds_for(cut, self._reference.own_result, case.inputs)
        except ProblemError:
            case.group.refused = True
            return None

    def overflows(self, case: Case, truth: Truth) -> bool:
        """Return whether torch overflows in this case. Always False for inputs as given."""
        return not case.is_as_given and overflows(truth, self._declared)

    def without_undefined(self, case: Case, truth: Truth, output: Any) -> Any | None:
        """Return the output with torch's own tensors in place of those that depend on a search among unsorted numbers;
        None if there is no such search."""
        return None if case.is_as_given else self._lookups.spared(truth, output)

    def cannot_judge(self, case: Case, truth: Truth) -> bool:
        """Return whether torch overflows, and no other part of the output can judge a program."""
        if not self.overflows(case, truth):
            return False
        # state and written inputs would overflow as well
        return self._reference.has_history or truth.changed_inputs is not None or cannot_judge(truth, self._declared)

    def is_sure(self, case: Case, truth: Truth) -> bool:
        """Return whether the reference is reliable on inputs beyond the given values."""
        return self._is_defined(case, truth) and is_sound(self._reference, truth, self._handover.precision)

    def without_unreliable(self, case: Case, truth: Truth, output: Any) -> Any | None:
        """Return the output with torch's own tensors in place of those that are not judged, because the reference is
        unreliable there; None if it is reliable everywhere."""
        if not self._is_defined(case, truth):
            return truth.own
        counts = unreliable(self._reference, truth, self._handover.precision)
        return spared_where_unreliable(self._reference, truth, output, counts) if any(counts) else None

    def _is_defined(self, case: Case, truth: Truth) -> bool:
        """Return whether the result has lost no digits because inputs are very small, and no limits cross."""
        if kind_of(case.name) == MINUTE and not is_in_proportion(self._reference, truth):
            return False
        return not (kind_of(case.name) == NEGATED and limits_cross(self._reference, truth.inputs))

    def _may_ruin_a_device(self, case: Case) -> bool:
        """Return whether a case may have indices out of bounds, which would break a device's context."""
        if self._handover.instance.device == HOST:
            return False
        return case.risky or (case.is_beyond and self._looks_up)

    @cached_property
    def _looks_up(self) -> bool:
        """Whether the reference uses an operator that fails for indices out of bounds."""
        return looks_up(self._reference, self._source.sample())

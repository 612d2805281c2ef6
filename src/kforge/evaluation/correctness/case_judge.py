"""Judges a program by one case: calls it, and compares its output with the reference's, whole or in pieces. (torch)"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from kforge.errors import ProblemError
from kforge.evaluation.comparison.fingerprint import Fingerprints
from kforge.evaluation.comparison.overflow import slices_are_right, spared
from kforge.evaluation.correctness.rounding import fails_nearby
from kforge.evaluation.correctness.side_effects import UNDUE_WRITE, must_keep_settings
from kforge.evaluation.large_problems.piecewise import InputsChangedError, Kept, Pieces
from kforge.evaluation.reference.history import Moment
from kforge.evaluation.transport.aliases import UNDUE_VIEW
from kforge.evaluation.worker_client.client import Fault
from kforge.problems.tensors import all_finite
from kforge.records import Mismatch, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.evaluation.comparison.comparison import Truth
    from kforge.evaluation.correctness.case import Case
    from kforge.evaluation.correctness.cases import CaseSource
    from kforge.evaluation.correctness.output_check import OutputCheck
    from kforge.evaluation.correctness.usable_cases import UsableCases
    from kforge.evaluation.correctness.weight_changes import Handover
    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.evaluation.reference.reference import Reference
    from kforge.evaluation.worker_client.client import Output


class CaseJudge:
    """Judges one program, case by case. Methods raise Fault for a wrong output."""

    def __init__(
        self, handover: Handover, source: CaseSource, outputs: OutputCheck, declared: str, usable: UsableCases
    ) -> None:
        """`declared` is the precision that the program may compute in."""
        self._handover = handover
        self._client = handover.client
        self._source = source
        self._outputs = outputs
        self._declared = declared
        self._usable = usable
        self._prints = Fingerprints()
        self.judged: set[str] = set()
        """Names of the cases that were judged and not dropped."""
        self.called_in_vain = False
        """Whether the program was called in the last case, and its output did not count."""
        self.judged_singly = False
        """Whether the inputs of the last case were varied one at a time, in several calls. Then the returned output may
        not be that of the last call."""
        self.left_out = False
        """Whether a case was dropped because it could not be judged in pieces, and there was too little memory to judge
        it whole."""

    @property
    def _reference(self) -> Reference:
        return self._handover.reference

    def judge(self, name: str, cases: Iterable[Case]) -> Output | None:
        """Judge the case of that name, or the first milder one that the reference accepts. Returns the program's
        output.

        If inputs are varied one at a time, each variation is judged. Returns None if none of the cases can judge a
        program.
        """
        self.called_in_vain = self.judged_singly = False
        cut, found = self._source.cut, None
        for case in cases:
            judged = self._judge_in_pieces(case, cut) if cut is not None else self._judge_whole(case)
            if judged is not None:
                self._source.learn(case)
                self.judged.add(name)
                if case.part is None:
                    return judged
                found, self.judged_singly = judged, True
        return found

    # --- whole inputs ----------------------------------------------------------------------------------------

    def _judge_whole(self, case: Case) -> Output | None:
        """Judge a case as a whole. Returns the output; None if the case cannot judge a program."""
        reference, before = self._reference, None
        reference.seed = case.seed
        if reference.has_history and not case.is_as_given:
            before = Moment(reference.model, reference.exact_model, parameters=reference.updates_parameters)
        truth = self._usable.truth(case)
        if truth is not None:
            return self._judge_against(truth, case)
        if before is not None:  # the program is not called on this case, so the reference must not keep its effect
            before.restore()
        return None

    def _judge_against(self, truth: Truth, case: Case) -> Output | None:
        """Call the program and compare its output with the right one. Returns the output if it is right.

        Returns None if it is wrong but excused, because the reference is unreliable on this case. Raises Fault if it is
        wrong and not excused.
        """
        overflow = truth.is_whole and self._usable.overflows(case, truth)
        try:
            output = self._client.call(case.inputs, poison=self._reference.output_bytes, seed=case.seed)
        except Fault as fault:
            if not fault.has_raised or case.is_as_given or not fails_nearby(self._reference, truth.inputs):
                raise
            self.called_in_vain = True
            return None
        if output.changed_inputs is not None and truth.changed_inputs is None:
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} ({case.name})"))
        # `truth.aliases` may call the reference, so it is used only if the program returns a view
        if output.aliases and not output.aliases <= truth.aliases:
            raise Fault(Rejected(rule="output_aliases_input", reason=f"{UNDUE_VIEW} ({case.name})"))
        must_keep_settings(output, case.name)
        try:
            self._outputs.must_agree(truth, output.value, case.name)
            self._outputs.must_change_inputs_alike(truth, output, case)
        except ProblemError:  # torch's own result is computed here if it was not, and may fail where fp64 does not
            if case.is_as_given:
                raise
            self.called_in_vain = True
            return None
        except Fault as fault:
            if not self._is_excused(truth, output, case, fault):
                raise
            self.called_in_vain = True
            return None
        if overflow:  # a milder case judges what overflows here
            self.called_in_vain = True
            return None
        return output

    def _is_excused(self, truth: Truth, output: Output, case: Case, fault: Fault) -> bool:
        """Return whether a wrong output says nothing against the program, because the reference is unreliable here."""
        if case.is_beyond:
            reliable = self._usable.without_unreliable(case, truth, output.value)
            if self._agrees(truth, reliable, case):
                return True
        if self._usable.overflows(case, truth):
            return self._usable.cannot_judge(case, truth) or self._rest_is_right(truth, output.value, case)
        if case.is_as_given or not isinstance(fault.verdict, Mismatch):
            return False
        defined = self._usable.without_undefined(case, truth, output.value)
        return self._agrees(truth, defined, case) or self._is_right_where_finite(truth, output, case)

    def _agrees(self, truth: Truth, output: Any | None, case: Case) -> bool:
        """Return whether an output, of which parts may have been replaced by right ones, is right; False for None."""
        if output is None:
            return False
        try:
            self._outputs.must_agree(truth, output, case.name)
        except Fault:
            return False
        return True

    def _is_right_where_finite(self, truth: Truth, output: Output, case: Case) -> bool:
        """Return whether the output differs only where the reference is not finite, and the inputs were changed
        correctly."""
        if not self._outputs.agrees_where_finite(truth, output.value, case.name):
            return False
        try:
            self._outputs.must_change_inputs_alike(truth, output, case)
        except Fault:
            return False
        return True

    def _rest_is_right(self, truth: Truth, output: Any, case: Case) -> bool:
        """Return whether, beside an overflow, all other tensors and slices of the output are right."""
        try:
            self._outputs.must_agree(truth, spared(truth, output, self._declared), case.name)
        except Fault as fault:
            # the size of an output may depend on what overflows
            return isinstance(fault.verdict, Mismatch) and fault.verdict.kind != "numerical"
        return slices_are_right(truth, output, self._declared)

    # --- large inputs, in pieces -----------------------------------------------------------------------------

    def _judge_in_pieces(self, case: Case, cut: Cut) -> Output | None:
        """Judge a large case piece by piece, without a copy of its inputs in the referee.

        Returns the output, which holds only fingerprints (`Kept`); None if the case cannot judge a program. A case
        whose samples depend on each other is judged as a whole. Raises Fault if the program fails the case.
        """
        pieces = Pieces(self._reference, cut, case.inputs, self._prints, self._outputs.precision)
        if not self._usable.takes_pieces(case, pieces):
            return None
        if not case.is_as_given:
            falls_apart = self._usable.falls_apart(case, cut)
            if falls_apart is None:
                return None
            if not falls_apart:
                return self._judge_coupled(case)
        placed = self._client.place(case.inputs)
        case.inputs[:] = placed  # frees the drawn inputs
        pieces.moved(placed)
        output = self._client.call(placed, poison=self._reference.output_bytes)
        must_keep_settings(output, case.name)
        try:
            if output.aliases and not output.aliases <= pieces.aliases():
                raise Fault(Rejected(rule="output_aliases_input", reason=f"{UNDUE_VIEW} ({case.name})"))
            self._outputs.must_agree_in_pieces(pieces, output.value, case.name)
        except InputsChangedError:
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} ({case.name})")) from None
        except Fault:
            doubtful = case.is_beyond and not all(
                all_finite(truth.exact) and self._usable.is_sure(case, truth) for truth, _ in pieces.truths()
            )
            overflow = not doubtful and not case.is_as_given and pieces.overflow(self._declared)
            if not doubtful and not (
                overflow and all(self._rest_is_right(truth, part, case) for truth, part in pieces.against(output.value))
            ):
                raise
            self.called_in_vain = True
            return None
        return replace(output, value=Kept(output.value, cut, self._prints))

    def _judge_coupled(self, case: Case) -> Output | None:
        """Judge a large case as a whole, because its samples depend on each other. Returns None if memory runs out."""
        try:
            return self._judge_whole(case)
        except torch.OutOfMemoryError:
            self.left_out = True
            return None

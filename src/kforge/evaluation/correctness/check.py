"""Checks a loaded program for correctness on all cases, with secret seeds. (torch)

This module decides the order of cases, of weight changes and of repeated calls. `case_judge.py` judges one case.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.evaluation.constants import COMPARED_STATE_SHARE, RECHECKED_SHARE
from kforge.evaluation.correctness.case import AS_GIVEN, OF_STATE, as_given_number
from kforge.evaluation.correctness.case_judge import CaseJudge
from kforge.evaluation.correctness.cases import CaseSource, begun
from kforge.evaluation.correctness.fixed_inputs import fixed_labels
from kforge.evaluation.correctness.output_check import OutputCheck
from kforge.evaluation.correctness.side_effects import must_stay
from kforge.evaluation.correctness.steadiness import forgets, must_be_deterministic, own_result_now
from kforge.evaluation.correctness.usable_cases import UsableCases
from kforge.evaluation.correctness.weight_changes import Handover
from kforge.evaluation.stages import CaseCounter
from kforge.problems.inputs.other_ranges import LARGE_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from kforge.evaluation.correctness.case import Case
    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.evaluation.reference.reference import Reference
    from kforge.evaluation.worker_client.client import Output, WorkerClient
    from kforge.problems.instance import Instance

REPACKED_STATES = 3
"""Number of secret initial states with which to judge a program that keeps its weights under other names or shapes."""


@dataclass(frozen=True)
class Correctness:
    """The result of a passed check: the number of cases, and labels for the verdict."""

    cases: int
    labels: tuple[str, ...]


class CorrectnessCheck:
    """Checks one program on one problem. Methods raise Fault at the first error."""

    def __init__(
        self,
        instance: Instance,
        client: WorkerClient,
        *,
        secret: str,
        precision: str,
        declared: str | None = None,
        cut: Cut | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`precision` decides the tolerance. `declared` is the precision that the program may compute in, if that
        differs.

        With `cut`, large cases are judged in pieces. `say` receives progress messages.
        """
        self.instance = instance
        self.client = client
        self.secret = secret
        self.precision = precision
        self.declared = declared or precision
        self.cut = cut
        self.say = say
        self.chance = secrets.SystemRandom()
        self.labels: list[str] = []
        self.cases = 0
        self.remembers = False
        """Whether the result of a call depends on earlier calls."""
        self.source = CaseSource(instance, secret, cut)
        self.handover = Handover(instance, client, secret, precision, self.source.sample)
        self.source.current_model = lambda: self.handover.reference.model
        self.outputs = OutputCheck(self.handover)
        self.usable = UsableCases(self.handover, self.source, self.declared)
        self._judge = CaseJudge(self.handover, self.source, self.outputs, self.declared, self.usable)

    @property
    def reference(self) -> Reference:
        """The reference with the program's present weights."""
        return self.handover.reference

    def run(self) -> Correctness:
        """Judge all cases, and return their number and the labels. Raises Fault at the first error."""
        states = REPACKED_STATES if self.handover.repacked else 1
        # one more in each state: the case with large weights
        count = CaseCounter("verify", states * (len(self.source.order(0)[0]) + 1), self.say)
        for state in range(states):
            if state:
                self.handover.construct(state)
            self._judge_state(state, count)
        findings = {
            "repacked_weights": self.handover.repacked,
            "no_fp64_reference": not self.reference.exact_is_fp64,
            "half_inside": self.reference.half_inside is not None,
            **dict.fromkeys(sorted(set(self.outputs.excused)), True),
            "random_reference": self.instance.draws_random_numbers,
            "has_history": self.remembers,
            "fixed_buffers": self.handover.has_fixed_buffers,
            "fixed_signs": self.handover.has_fixed_signs or self.source.has_fixed_signs,
            **fixed_labels(self.source, self._judge.judged),
            "integers_within_range": self.handover.has_drawn_integers or None in self.source.limits.values(),
            "case_left_out": self._judge.left_out,
        }
        self.labels += [label for label, found in findings.items() if found]
        return Correctness(self.cases, tuple(self.labels))

    def renew_weights(self, inputs: list[Any] | None = None) -> dict[str, torch.Tensor]:
        """Give the program and the reference new weights. Returns the whole state, for a baseline.

        `inputs` are those of the next call, if they are known. Raises Fault if the program has changed weights that the
        reference does not change.
        """
        self.handover.must_have_left_the_rest()
        return self.handover.renew(inputs)

    def sample(self, distributions: Sequence[str], seconds: float) -> int:
        """Judge one case with inputs as given, then one of each of these distributions until `seconds` have passed.

        Returns the number of judged cases.
        """
        end = time.monotonic() + seconds
        for name in ("as_given #0", *distributions):
            if not self.cases or time.monotonic() < end:
                self.cases += self._judge.judge(name, self.source.draw(0, name)) is not None
        return self.cases

    def _judge_state(self, state: int, count: CaseCounter) -> None:
        """Judge all cases from one secret initial state, with weight changes in between. At the end repeat one of the
        calls."""
        names, changes = self.source.order(state)
        first: Any = None
        own_then: Any = None
        last: Output | None = None
        repeated = 0
        for number, (name, cases) in enumerate(self.source.draw_all(state, names)):
            count.begin_next()
            if number in changes and not self.handover.repacked:
                self.handover.must_have_updated_alike("before new weights")
                inputs, cases = (None, cases) if name in OF_STATE else begun(cases)
                self.renew_weights(None if inputs is None else self.source.part_of(inputs))
                last = first = None  # outputs may be views of weights, and the repeated call uses the last weights
            own = None
            # the weights of a repacked program do not change, so its first call is the one to repeat, before which it
            # is not known whether the reference's state changes
            may_remember = self.reference.has_history or (self.handover.repacked and self.source.cut is None)
            if first is None and name.startswith(AS_GIVEN) and may_remember:
                # before the call, so that it is the result for the same earlier calls as the program's output
                own = own_result_now(self.reference, self.source.as_given(state, as_given_number(name)))
            judged = self._judge.judge(name, cases)
            if judged is None:
                last = None  # it is not known what the worker now holds as its earlier output
                continue
            last, previous = None if self._judge.judged_singly else judged, None if self._judge.called_in_vain else last
            if previous is not None and last is not None and self.chance.random() < RECHECKED_SHARE:
                must_stay(previous, self.client.previous_output(), self.reference)
            if self.reference.has_history and self.chance.random() < COMPARED_STATE_SHARE:
                self.handover.must_have_updated_alike(f"after {name}")
            if first is None and name.startswith(AS_GIVEN):  # such a case follows the last change of weights
                first, repeated, own_then = judged.value, as_given_number(name), own
            self.cases += 1
        self.handover.must_have_updated_alike("after all calls")
        self.handover.must_have_left_the_rest()
        # the repeated call comes last, because the reference does not make it, so that their states differ afterwards;
        # its inputs are drawn again, because keeping them would take much of a device's memory
        self._repeat(self.source.as_given(state, repeated), first, own_then)
        count.begin_next()
        if not self.reference.has_history:  # otherwise very large numbers would stay in its state
            self._judge_large_weights(state)

    def _repeat(self, case: Case, first: Any, own_then: Any) -> None:
        """Call the program again on an earlier case, and compare with its first output, unless results depend on
        earlier calls.

        `own_then` is the reference's own result at that time; None if its state had not changed by then and it is not
        known.
        """
        self.remembers = self.reference.has_history and (
            own_then is None or not forgets(self.reference, case, own_then, self.precision)
        )
        if not self.remembers and not must_be_deterministic(self.handover, case, first, self.outputs.worst.tolerance):
            self.labels.append("nondeterministic")

    def _judge_large_weights(self, state: int) -> None:
        """Judge cases in which parameters have some far larger elements, and restore the parameters after each.

        There may be no such case, if the reference does not accept it. `state` is the number of the secret state with
        which inputs are drawn. Raises Fault if the program fails a case.
        """
        for _ in self.handover.enlarged():
            self.cases += self._judge.judge(LARGE_WEIGHTS, self.source.draw(state, LARGE_WEIGHTS)) is not None

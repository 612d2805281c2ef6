"""Checks a loaded program for correctness: secret seeds, several distributions, no case skipped. (torch)"""

from __future__ import annotations

import copy
import secrets
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Agreement, Truth, compare
from kforge.evaluation.comparison.fingerprint import Fingerprints
from kforge.evaluation.comparison.overflow import judges_nobody, overflows, slices_are_right, spared
from kforge.evaluation.correctness.against_baseline import Beside
from kforge.evaluation.correctness.beyond_given_values import GROSS, is_in_proportion, is_sound, looks_up
from kforge.evaluation.correctness.cases import AS_GIVEN, Case, CaseSource, begun
from kforge.evaluation.correctness.fixed_inputs import fixed_labels
from kforge.evaluation.correctness.rounding import excused, fails_nearby, gives_alike
from kforge.evaluation.correctness.side_effects import UNDUE_WRITE, must_leave_the_rest, must_stay, must_write_alike
from kforge.evaluation.correctness.steadiness import found_as_unsteady
from kforge.evaluation.correctness.weight_changes import Handover
from kforge.evaluation.large_problems.pieces import holds_for
from kforge.evaluation.large_problems.piecewise import InputsChangedError, Kept, Pieces
from kforge.evaluation.protocol import COMPARED_STATE_SHARE, DETERMINISM_SHARE, RECHECKED_SHARE, UNSTEADY_FACTOR
from kforge.evaluation.reference.history import Moment
from kforge.evaluation.stages import Count
from kforge.evaluation.transport.aliases import UNDUE_VIEW
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.problems.inputs.other_ranges import LARGE_WEIGHTS, MINUTE, is_beyond, kind_of
from kforge.problems.tensors import HOST, all_finite, cloned, same
from kforge.records import Mismatch, Rejected, RuntimeFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.evaluation.reference.reference import Reference
    from kforge.evaluation.worker_client.client import Output
    from kforge.problems.instance import Instance

TIMED_ALIKE = ("as_given", "odd_rows")
"""Cases whose inputs are like those of timed calls."""
ON_GIVEN_INPUTS = ("as_given", "a timed call", "a watched call")
"""Beginnings of the names of cases with the problem's own inputs: there each part of an output is judged, too."""
REPACKED_STATES = 3
"""Number of secret states that judge a program which keeps its weights in another form."""
FORGETTING_SHARE = DETERMINISM_SHARE / 2
"""A module whose results for the same inputs drift apart by more than this share of the tolerance has a history."""


@dataclass(frozen=True)
class Correctness:
    agreement: Agreement
    cases: int
    labels: tuple[str, ...]


class CorrectnessCheck:
    """Judges one program on one problem. Raises Fault at the first thing that is wrong."""

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
        """`precision`: the one that the program must keep; `declared`: the one that it uses, where that is another.

        `cut`: judge in pieces, because the cases are large. `say` gets the name of each case that begins.
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
        self.worst = Agreement()
        self.excused: list[str] = []
        """Why cases count as right though an output is off there, as labels (correctness/rounding.py)."""
        self.cases = 0
        self.judged: set[str] = set()
        """Names of the cases that were judged, and not dropped."""
        self.called_in_vain = False
        """Whether the program was called for a case that judges no program, since the last one that was judged."""
        self.judged_singly = False
        """Whether inputs of the last case were varied in several calls: then its output may not be the last one."""
        self.remembers = False
        """Whether the result of a call depends on earlier calls."""
        self.largest_tolerance = 0.0
        """Largest tolerance of cases with inputs like those of timed calls, for outputs that no copy can compute."""
        self.left_out = False
        """Whether a case could be judged neither in pieces nor, for lack of memory, as a whole."""
        self.prints = Fingerprints()
        self.source = CaseSource(instance, secret, cut)
        self.handover = Handover(instance, client, secret, precision, self.source.sample)

    @property
    def reference(self) -> Reference:
        """The reference with the weights that the program has now."""
        return self.handover.reference

    @property
    def in_sequence(self) -> bool:
        """Whether a call's result depends on the calls before it: on state, or on random numbers that they drew."""
        return self.reference.has_history or self.instance.draws_random_numbers

    def run(self) -> Correctness:
        states = REPACKED_STATES if self.handover.repacked else 1
        # one more in each state: that of large weights
        count = Count("verify", states * (len(self.source.order(0)[0]) + 1), self.say)
        for state in range(states):
            if state:
                self.handover.construct(state)
            self._judge_state(state, count)
        findings = {
            "repacked_weights": self.handover.repacked,
            "no_fp64_reference": not self.reference.exact_is_fp64,
            "half_inside": self.reference.half_inside is not None,
            **dict.fromkeys(sorted(set(self.excused)), True),
            "random_reference": self.instance.draws_random_numbers,
            "has_history": self.remembers,
            "fixed_buffers": self.handover.has_fixed_buffers,
            "fixed_signs": self.handover.has_fixed_signs,
            **fixed_labels(self.source, self.judged),
            "integers_within_range": self.handover.has_drawn_integers or None in self.source.limits.values(),
            "case_left_out": self.left_out,
        }
        self.labels += [label for label, found in findings.items() if found]
        return Correctness(self.worst, self.cases, tuple(self.labels))

    def renew_weights(self, inputs: list[Any] | None = None) -> dict[str, torch.Tensor]:
        """Give both sides new weights before a call on these inputs, if known. Returns the state, for a baseline.

        Raises Fault for a program that has changed weights which the reference leaves as they were.
        """
        self.handover.must_have_left_the_rest()
        return self.handover.renew(inputs)

    def sample(self, distributions: Sequence[str], seconds: float) -> int:
        """Judge one case as given, then one of each of these as long as the time allows. Returns their number."""
        end = time.monotonic() + seconds
        for name in ("as_given #0", *distributions):
            if not self.cases or time.monotonic() < end:
                self.cases += self._judge_usable(name, self.source.draw(0, name)) is not None
        return self.cases

    def verify(self, inputs: list[Any], output: Any, case: str) -> None:
        """Compare one output with the truth; also used on the outputs of timed calls."""
        if self.in_sequence:
            return  # the right result depends on calls that the reference has not made: see `verify_beside`
        if self.cut is not None:
            self._agrees_in_pieces(Pieces(self.reference, self.cut, inputs, precision=self.precision), output, case)
            return
        truth = self.reference.truth(inputs)
        try:
            self._agrees(truth, output, case)
        except Fault:
            if not self._overflows_for_odd_rows(truth):
                raise
            self._agrees(truth, spared(truth, output, self.declared), case)

    def _overflows_for_odd_rows(self, truth: Truth) -> bool:
        """Return whether the reference overflows here and not on inputs as given, because of odd rows."""
        if self.source.odd_rows is None or not overflows(truth, self.declared):
            return False
        return not overflows(self.reference.truth(self.source.as_given(0, 0).inputs), self.declared)

    def reference_fails_when_timed(self) -> bool:
        """Return whether the reference has no result for odd rows of the last timed inputs."""
        return any(fails_nearby(self.reference, inputs) for inputs in self.source.last_odd_sets())

    def verify_written(self, inputs: list[Any], left: Any, case: str) -> None:
        """Compare what a call has left of its inputs with what the reference leaves of them."""
        written = self.reference.truth(inputs).changed_inputs
        if written is not None:
            must_write_alike(inputs, written, left, self.precision, case)

    def verify_beside(self, expected: Any, output: Any, case: str, inputs: list[Any]) -> None:
        """Compare an output of a timed call with the baseline's, which has made the same calls (`in_sequence`)."""
        found = Beside(self.reference, inputs, self.precision, self.largest_tolerance).differs(expected, output, case)
        if found is not None:
            raise Fault(found)

    def verify_state_beside(self, expected: dict[str, Any], left: Any, case: str) -> None:
        """Compare the state that timed calls have left with the baseline's, each entry by its own tolerance."""
        for name, ours in expected.items():
            most = self.handover.tolerances.get(name, 0.0)
            theirs = left.get(name) if isinstance(left, dict) else None
            found = Beside(self.reference, None, self.precision, most).differs(ours, theirs, f"{case}: {name}")
            if found is not None:
                raise Fault(found)
            if self.handover.has_left_out(name, ours, theirs):
                reason = f"{name} of the state is left as it was where the reference changes it"
                raise Fault(Mismatch(kind="numerical", reason=reason, case=case))

    # --- cases -----------------------------------------------------------------------------------------------

    def _judge_state(self, state: int, count: Count) -> None:
        names, changes = self.source.order(state)
        first: Any = None
        own_then: Any = None
        last: Output | None = None
        repeated = 0
        for number, (name, cases) in enumerate(self.source.draw_all(state, names)):
            count.begin_next()
            if number in changes and not self.handover.repacked:
                self.handover.must_have_updated_alike("before new weights")
                inputs, cases = begun(cases)
                self.renew_weights(None if inputs is None else self.source.part_of(inputs))
                last = first = None  # outputs may be views of weights; and a repeated call has the last ones
            self.called_in_vain = self.judged_singly = False
            judged = self._judge_usable(name, cases)
            if judged is None:
                last = None  # it is not known what the worker now holds as its earlier output
                continue
            last, previous = None if self.judged_singly else judged, None if self.called_in_vain else last
            if previous is not None and last is not None and self.chance.random() < RECHECKED_SHARE:
                must_stay(previous, self.client.previous_output(), self.reference)
            if self.reference.has_history and self.chance.random() < COMPARED_STATE_SHARE:
                self.handover.must_have_updated_alike(f"after {name}")
            if first is None and name.startswith(AS_GIVEN):  # one comes after the last change of weights
                first, repeated = judged.value, int(name.rpartition("#")[2])
                own_then = self._own_now(self.source.as_given(state, repeated)) if self.reference.has_history else None
            self.cases += 1
        self.handover.must_have_updated_alike("after all calls")
        self.handover.must_have_left_the_rest()
        # repeated last: one more call of the program, which the reference does not make, must not shift the state;
        # and drawn again, since inputs kept all the while may be a good part of a device's memory
        again = self.source.as_given(state, repeated)
        # where `own_then` is missing, its first call with a history came later
        self.remembers = self.reference.has_history and (own_then is None or not self._forgets(again, own_then))
        if not self.remembers:
            self._is_deterministic(again, first)
        count.begin_next()
        if not self.reference.has_history:  # otherwise its state would hold such numbers from then on
            self._judge_large_weights(state)

    def _judge_large_weights(self, state: int) -> None:
        """Judge a case with weights far larger than drawn, or one for each that can be; then restore the weights."""
        for _ in self.handover.enlarged():
            self.cases += self._judge_usable(LARGE_WEIGHTS, self.source.draw(state, LARGE_WEIGHTS)) is not None

    def _own_now(self, case: Case) -> Any:
        """Return what the reference gives for a case in its present state, which stays as it is."""
        self.reference.seed = case.seed
        return self.reference.own_result(cloned(case.inputs), copy.deepcopy(self.reference.model))

    def _forgets(self, case: Case, earlier: Any) -> bool:
        """Return whether a reference with a history gives for these inputs (nearly) what it gave for them earlier."""
        found = compare(Truth(earlier, earlier), self._own_now(case), self.precision, case.name)
        return isinstance(found, Agreement) and found.error <= FORGETTING_SHARE * found.tolerance

    def _judge_usable(self, name: str, cases: Iterable[Case]) -> Output | None:
        """Judge the case of that name, or the first milder one that the reference takes, and return its output.

        Where inputs are varied one at a time, each is judged. None where no program is judged by any of the cases.
        """
        found: Output | None = None
        for case in cases:
            judged = self._judge_in_pieces(case, self.cut) if self.cut is not None else self._judge_whole(case)
            if judged is not None:
                self.source.learn(case)
                self.judged.add(name)
                if case.part is None:
                    return judged
                found, self.judged_singly = judged, True
        return found

    def _judge_whole(self, case: Case) -> Output | None:
        self.reference.seed = case.seed
        reference, before = self.reference, None
        if reference.has_history and not case.is_as_given:
            before = Moment(reference.model, reference.exact_model, parameters=reference.updates_parameters)
        truth = self._usable_truth(case)
        if truth is not None:
            return self._judge(case, truth)
        if before is not None:  # the program does not make this call
            before.restore()
        return None

    def _usable_truth(self, case: Case) -> Truth | None:
        """Return the truth of a case; None where the reference itself cannot take these inputs."""
        if case.is_scaled and self.reference.has_history:  # otherwise its state would hold such numbers from then on
            return None
        if self._may_ruin_a_device(case) and not self.handover.takes_on_host(case.inputs):
            return None
        try:
            truth = self.reference.truth(case.inputs)
        except ProblemError:
            if case.is_as_given:
                raise
            case.progress.refused = True
            return None
        if (case.is_discrete or case.is_beyond) and not all_finite(truth.exact):
            return None
        if case.alike is not None and not gives_alike(self.reference, truth, case.alike, self.precision):
            return None
        if not truth.is_whole and self.declared != "half":  # whether torch overflows is asked only where it matters
            return truth
        return None if self._judges_nobody(case, truth) else truth

    def _may_ruin_a_device(self, case: Case) -> bool:
        if self.instance.device == HOST:
            return False
        return case.risky or (case.is_beyond and self._looks_up)

    @cached_property
    def _looks_up(self) -> bool:
        return looks_up(self.reference, self.source.sample())

    def _overflows(self, case: Case, truth: Truth) -> bool:
        return not case.is_as_given and overflows(truth, self.declared)

    def _judges_nobody(self, case: Case, truth: Truth) -> bool:
        if not self._overflows(case, truth):
            return False
        # state and written inputs would hold such numbers as well
        return self.reference.has_history or truth.changed_inputs is not None or judges_nobody(truth, self.declared)

    def _rest_is_right(self, truth: Truth, output: Any, case: Case) -> bool:
        """Return whether all tensors and slices that judge a program beside an overflow are right."""
        try:
            self._agrees(truth, spared(truth, output, self.declared), case.name)
        except Fault as fault:
            # the size of an output may depend on what overflows
            return isinstance(fault.verdict, Mismatch) and fault.verdict.kind != "numerical"
        return slices_are_right(truth, output, self.declared)

    def _is_sure(self, case: Case, truth: Truth) -> bool:
        """Return whether the reference is sure of a result beyond the given values."""
        if kind_of(case.name) == MINUTE and not is_in_proportion(self.reference, truth):
            return False
        return is_sound(self.reference, truth, self.precision)

    def _judge(self, case: Case, truth: Truth) -> Output | None:
        """Return the output if it is right; None where it need not be."""
        overflow = truth.is_whole and self._overflows(case, truth)
        try:
            output = self.client.call(case.inputs, poison=self.reference.output_bytes, seed=case.seed)
        except Fault as fault:
            if not has_raised(fault) or case.is_as_given or not fails_nearby(self.reference, truth.inputs):
                raise
            self.called_in_vain = True
            return None
        if output.changed_inputs is not None and truth.changed_inputs is None:
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} ({case.name})"))
        # whether the reference's output is a view as well costs a call of it, so it is asked only here
        if output.aliases and not output.aliases <= truth.aliases:
            raise Fault(Rejected(rule="output_aliases_input", reason=f"{UNDUE_VIEW} ({case.name})"))
        try:
            self._agrees(truth, output.value, case.name)
            self._changes_inputs_alike(truth, output, case)
        except ProblemError:  # torch's own result is asked for only where it matters, and may fail where fp64 does not
            if case.is_as_given:
                raise
            self.called_in_vain = True
            return None
        except Fault:
            beyond = case.is_beyond and not self._is_sure(case, truth)
            beside = not beyond and self._overflows(case, truth)
            nobody = beyond or (beside and self._judges_nobody(case, truth))
            if not (nobody or (beside and self._rest_is_right(truth, output.value, case))):
                raise
            self.called_in_vain = True
            return None
        if overflow:  # a milder case judges what overflows here
            self.called_in_vain = True
            return None
        return output

    def _judge_in_pieces(self, case: Case, cut: Cut) -> Output | None:
        """Like `_judge`, for inputs of which the referee has no copy; the output is only kept as `Kept`."""
        pieces = Pieces(self.reference, cut, case.inputs, self.prints, self.precision)
        if not self._is_usable_in_pieces(case, pieces):
            return None
        if not case.is_as_given and not self._falls_apart(case, cut):
            return self._judge_coupled(case)
        placed = self.client.place(case.inputs)
        case.inputs[:] = placed  # frees the drawn inputs
        pieces.moved(placed)
        output = self.client.call(placed, poison=self.reference.output_bytes)
        try:
            if output.aliases and not output.aliases <= pieces.aliases():
                raise Fault(Rejected(rule="output_aliases_input", reason=f"{UNDUE_VIEW} ({case.name})"))
            self._agrees_in_pieces(pieces, output.value, case.name)
        except InputsChangedError:
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} ({case.name})")) from None
        except Fault:
            doubtful = case.is_beyond and not all(
                all_finite(truth.exact) and self._is_sure(case, truth) for truth, _ in pieces.truths()
            )
            overflow = not doubtful and not case.is_as_given and pieces.overflow(self.declared)
            if not doubtful and not (
                overflow and all(self._rest_is_right(truth, part, case) for truth, part in pieces.against(output.value))
            ):
                raise
            self.called_in_vain = True
            return None
        return replace(output, value=Kept(output.value, cut, self.prints))

    def _falls_apart(self, case: Case, cut: Cut) -> bool:
        """Return whether the cut, which was found on inputs as given, is valid for this case."""
        try:
            return holds_for(cut, self.reference.own_result, case.inputs)
        except ProblemError:  # the reference takes each piece, but not all of them together
            return False

    def _judge_coupled(self, case: Case) -> Output | None:
        """Judge a case in which samples depend on each other as a whole; where memory is short it judges no program."""
        try:
            return self._judge_whole(case)
        except torch.OutOfMemoryError:
            self.left_out = True
            return None

    def _is_usable_in_pieces(self, case: Case, pieces: Pieces) -> bool:
        """Return whether the reference itself can take these inputs, as its first piece shows."""
        if self._may_ruin_a_device(case):
            return False
        try:
            pieces.learn_form()
            return case.is_as_given or self.declared != "half" or not pieces.overflow(self.declared)
        except ProblemError:
            if case.is_as_given:
                raise
            case.progress.refused = True
            return False

    def _agrees_in_pieces(self, pieces: Pieces, output: Any, case: str) -> None:
        for truth, part in pieces.against(output):
            self._agrees(truth, part, case)

    def _agrees(self, truth: Truth, output: Any, case: str) -> None:
        # where another distribution makes a row small, errors on the scale of the whole are fair
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
        why = excused(self.reference, truth, output, precision, local=local) if found.kind == "numerical" else None
        if why is None:
            raise Fault(found)
        if not is_beyond(case):
            self.excused.append(why)

    def _changes_inputs_alike(self, truth: Truth, output: Output, case: Case) -> None:
        """Check what a reference writes into its inputs, which is output as well, where the referee can see it."""
        if truth.changed_inputs is None or not self.client.access.sees:
            return
        left = case.inputs if output.changed_inputs is None else output.changed_inputs
        must_leave_the_rest(case.inputs, truth.changed_inputs.own, left, case.name)
        must_write_alike(case.inputs, truth.changed_inputs, left, self.precision, case.name)

    def _is_deterministic(self, case: Case, earlier: Any) -> None:
        if isinstance(earlier, Kept):
            case.inputs[:] = placed = self.client.place(case.inputs)
            again = self.client.call(placed).value
            if earlier.is_still(again):
                return
            # one piece shows how far they are apart
            again, inputs = earlier.cut.output(again, *earlier.bounds), earlier.cut.inputs(case.inputs, *earlier.bounds)
            case, earlier = Case(case.name, inputs), earlier.part
        else:
            again = self.client.call(case.inputs, seed=case.seed).value
        if same(earlier, again):
            return
        self.labels.append("nondeterministic")
        found = compare(Truth(earlier, earlier), again, self.precision, f"{case.name}, repeated")
        limit = DETERMINISM_SHARE * max(self.worst.tolerance, found.tolerance or 0.0)
        if isinstance(found, Agreement) and found.error <= limit:
            return
        if found_as_unsteady(self.reference, case.inputs, earlier, again, limit):
            return
        reason = (
            "the same inputs give outputs that differ by more than a quarter of the tolerance, "
            f"and by more than {UNSTEADY_FACTOR:g} times what torch's own differ by"
        )
        raise Fault(Mismatch(kind="numerical", reason=reason, case=case.name))


def has_raised(fault: Fault) -> bool:
    """Return whether a program failed by raising an exception."""
    return isinstance(fault.verdict, RuntimeFailure) and fault.verdict.fault == "raised"

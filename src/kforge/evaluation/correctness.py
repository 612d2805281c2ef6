"""Step by step from a loaded program to "correct": secret seeds, several distributions, no case skipped. (torch)"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kforge.errors import ProblemError
from kforge.evaluation.aliases import UNDUE_VIEW, tensor_leaves
from kforge.evaluation.conditioning import excused
from kforge.evaluation.constants import AS_GIVEN_CASES, DETERMINISM_SHARE, RECHECKED_SHARE, UNSTEADY_FACTOR
from kforge.evaluation.contestant import Contestant, Fault
from kforge.evaluation.effects import UNDUE_WRITE, must_leave_the_rest
from kforge.evaluation.reference import Reference, subseed
from kforge.evaluation.stages import Count
from kforge.evaluation.steadiness import found_as_unsteady
from kforge.evaluation.verify import Agreement, Truth, compare, overflows
from kforge.problems.distributions import DISTRIBUTIONS
from kforge.problems.tensors import same
from kforge.records import Mismatch, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kforge.evaluation.contestant import Output
    from kforge.evaluation.wire import TensorRef
    from kforge.problems.instance import Instance

REPACKED_STATES = 3
"""How many secret states judge a program that keeps its weights in a form of its own."""


@dataclass(frozen=True)
class Case:
    name: str
    inputs: list[Any]


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
        contestant: Contestant,
        *,
        secret: str,
        precision: str,
        declared: str | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`precision` is what it must keep; `declared` what the program is said to use, where that is another one.

        `say` is told which case begins.
        """
        self.instance = instance
        self.contestant = contestant
        self.secret = secret
        self.precision = precision
        self.declared = declared or precision
        self.say = say
        self.chance = secrets.SystemRandom()
        self.labels: list[str] = []
        self.worst = Agreement()
        self.excused: list[str] = []
        """Cases that no program need get right by more than torch does for inputs next to them."""
        self.cases = 0
        self.reference = self._construct(0)

    def run(self) -> Correctness:
        states = REPACKED_STATES if "repacked_weights" in self.labels else 1
        count = Count("verify", states * (AS_GIVEN_CASES + len(DISTRIBUTIONS) - 1), self.say)
        for state in range(states):
            if state:
                self.reference = self._construct(state)
            self._judge_state(state, count)
        if not self.reference.exact_is_fp64:
            self.labels.append("no_fp64_reference")
        self.labels += ["ill_conditioned"] if self.excused else []
        return Correctness(self.worst, self.cases, tuple(self.labels))

    def sample(self, distributions: Sequence[str], seconds: float) -> int:
        """One case as given, then one of each of these as long as the time allows; how many it were."""
        end = time.monotonic() + seconds
        self._judge_usable(self._as_given(0, 0))
        for name in distributions:
            if time.monotonic() < end:
                self._judge_usable(self._drawn(0, name))
        return self.cases

    def verify(self, inputs: list[Any], output: Any, case: str) -> None:
        """One output against the truth; also used on the outputs of timed calls."""
        self._agrees(self.reference.truth(inputs), output, case)

    def verify_written(self, inputs: list[Any], left: Any, case: str) -> None:
        """What a call has left of its inputs, against what the reference leaves of them."""
        written = self.reference.truth(inputs).changed_inputs
        if written is not None:
            self._written_alike(written, left, case)

    def _written_alike(self, written: Truth, left: Any, case: str) -> None:
        found = compare(written, left, self.precision, case, "inputs after the call")
        if isinstance(found, Mismatch):
            raise Fault(found)

    # --- construction ----------------------------------------------------------------------------------------

    def _construct(self, state: int) -> Reference:
        """Both sides under one secret random state, then both with weights that came into being after it.

        A program that keeps its weights in a form of its own has drawn them as the reference did; it is handed only
        what no draw decides.
        """
        seed = subseed(self.secret, "construct", state)
        theirs = self.contestant.construct(self.instance, seed)
        if self.instance.problem.state_digest is not None:
            reference = Reference(self.instance, seed)
            names = list(reference.state())
        else:
            reference = Reference(self.instance, subseed(self.secret, "weights", state), varied=True)
            names = list(reference.state())
            if _lacking(reference.state(), names, theirs):
                reference = Reference(self.instance, seed, varied=True)
                names = reference.varied
                self.labels += ["repacked_weights"] if "repacked_weights" not in self.labels else []
        ours = reference.state()
        if missing := _lacking(ours, names, theirs):
            raise Fault(_cannot_be_handed_over(missing))
        self.contestant.set_state({name: ours[name] for name in names})
        return reference

    # --- cases -----------------------------------------------------------------------------------------------

    def _judge_state(self, state: int, count: Count) -> None:
        before = {name: value.clone() for name, value in self.reference.state().items()}
        first: Any = None
        last: Output | None = None
        for case in self._cases(state):
            count.begin_next()
            truth = self._usable_truth(case)
            if truth is None:
                continue
            judged = self._judge(case, truth)
            if judged is None:
                last = None  # nothing is known of what the worker holds as its earlier output now
                continue
            last, previous = judged, last
            if previous is not None and self.chance.random() < RECHECKED_SHARE:
                self._earlier_output_stays(previous)
            first = judged.value if first is None else first
            self.cases += 1
        self._buffers_agree(before)
        # repeated last: one more call of the program, which the reference does not make, must not shift the buffers;
        # and drawn again, since inputs kept all the while may be a good part of a device's memory
        self._is_deterministic(self._as_given(state, 0), first)

    def _cases(self, state: int) -> Iterator[Case]:
        for index in range(AS_GIVEN_CASES):
            yield self._as_given(state, index)
        for name in DISTRIBUTIONS:
            if name != "as_given":
                yield self._drawn(state, name)

    def _as_given(self, state: int, index: int) -> Case:
        return Case(f"as_given #{index}", self.instance.inputs(subseed(self.secret, "inputs", state, index)))

    def _drawn(self, state: int, name: str) -> Case:
        seed = subseed(self.secret, "distribution", state, name)
        generator = torch.Generator(self.instance.device).manual_seed(seed)
        return Case(name, DISTRIBUTIONS[name](self.instance.inputs(seed), generator))

    def _judge_usable(self, case: Case) -> None:
        truth = self._usable_truth(case)
        if truth is not None and self._judge(case, truth) is not None:
            self.cases += 1

    def _usable_truth(self, case: Case) -> Truth | None:
        """The truth of a case, or None where the reference itself cannot take such inputs."""
        try:
            truth = self.reference.truth(case.inputs)
        except ProblemError:
            if case.name.startswith("as_given"):
                raise
            return None
        if not truth.is_whole and self.declared != "half":  # whether torch overflows is asked where that matters
            return truth
        return None if self._judges_nobody(case, truth) else truth

    def _judges_nobody(self, case: Case, truth: Truth) -> bool:
        return not case.name.startswith("as_given") and overflows(truth, self.declared)

    def _judge(self, case: Case, truth: Truth) -> Output | None:
        """The output, if it is right; None where it need not be."""
        output = self.contestant.call(case.inputs, poison=self.reference.output_bytes)
        if output.changed_inputs is not None and truth.changed_inputs is None:
            raise Fault(Rejected(rule="input_modified", reason=f"{UNDUE_WRITE} ({case.name})"))
        # whether the reference's output is a view as well costs a call of it, so it is asked only here
        if output.aliases and not output.aliases <= truth.aliases:
            raise Fault(Rejected(rule="output_aliases_input", reason=f"{UNDUE_VIEW} ({case.name})"))
        try:
            self._agrees(truth, output.value, case.name)
            self._changes_inputs_alike(truth, output, case)
        except Fault:
            if self._judges_nobody(case, truth):
                return None
            raise
        return output

    def _agrees(self, truth: Truth, output: Any, case: str) -> None:
        found = compare(truth, output, self.precision, case)
        if isinstance(found, Agreement):
            self.worst = self.worst.worse_of(found)
        elif found.kind != "numerical" or not excused(self.reference, truth, output, self.precision):
            raise Fault(found)
        else:
            self.excused.append(case)

    def _changes_inputs_alike(self, truth: Truth, output: Output, case: Case) -> None:
        """What a reference writes into its inputs is output as well, where that can be seen from here."""
        if truth.changed_inputs is None or not self.contestant.reach.sees:
            return
        left = case.inputs if output.changed_inputs is None else output.changed_inputs
        must_leave_the_rest(case.inputs, truth.changed_inputs.own, left, case.name)
        self._written_alike(truth.changed_inputs, left, case.name)

    def _earlier_output_stays(self, earlier: Output) -> None:
        """But for views of inputs, which change with them."""
        views = {number for number, _ in earlier.aliases}
        then, now = (
            [leaf for number, leaf in enumerate(tensor_leaves(value)) if number not in views]
            for value in (earlier.value, self.contestant.previous_output())
        )
        if not same(then, now):
            own = " (the reference returns a buffer that it updates: return a copy)"
            reason = "the output of an earlier call changed during a later one: its buffer is used again"
            raise Fault(Rejected(rule="output_reused", reason=reason + own * self.reference.overwrites_outputs))

    def _buffers_agree(self, before: dict[str, torch.Tensor]) -> None:
        updated = self.reference.buffers_it_updates(before)
        if not updated:
            return
        theirs = self.contestant.state(list(updated))
        for name, truth in updated.items():
            found = compare(truth, theirs.get(name), self.precision, f"buffer {name} after all calls")
            if isinstance(found, Mismatch):
                raise Fault(found)

    def _is_deterministic(self, case: Case, earlier: Any) -> None:
        again = self.contestant.call(case.inputs).value
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


def _lacking(ours: dict[str, torch.Tensor], names: list[str], theirs: dict[str, TensorRef]) -> list[str]:
    """Those of our entries that the program's state does not hold under the same name and in the same shape."""
    return [name for name in names if name not in theirs or theirs[name].shape != tuple(ours[name].shape)]


def _cannot_be_handed_over(missing: list[str]) -> Mismatch:
    names = ", ".join(missing[:5])
    reason = (
        f"the program's state_dict lacks {names} of the reference: weights that are given, or that every constructor "
        "leaves alike (ones, zeros), must keep their names and shapes to be judged with other values"
    )
    return Mismatch(kind="structure", reason=reason)

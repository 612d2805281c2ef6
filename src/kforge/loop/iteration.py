"""One iteration of the loop, after the agents: evaluates the program, compares it with the best, and runs it under the
sanitizers if it would be the best or has crashed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError
from kforge.loop.profiles import Profiles
from kforge.loop.proving import HeadToHeads
from kforge.loop.quiet import LABEL, is_disturbed
from kforge.loop.workshop import R, once
from kforge.problems.originality import UNCHANGED, is_unchanged
from kforge.records import (
    Attempt,
    Evaluation,
    RuntimeFailure,
    Sanitization,
    SanitizedClean,
    SanitizerFinding,
    best_attempt,
)
from kforge.search import Optimize, Repair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.agents import Answer
    from kforge.loop.round import Draft
    from kforge.loop.workshop import Workshop
    from kforge.records import Candidate
    from kforge.store import RunFolder

MEASURED_AGAIN = "evaluation_again"
"""The stage of an evaluation that was repeated in a quieter moment."""


class Iteration:
    """One iteration: the judge evaluates what the agents made, and compares it with the best program."""

    def __init__(self, run: RunFolder, workshop: Workshop, attempts: Sequence[Attempt]) -> None:
        self.run = run
        self.index = len(attempts)
        self.attempts = attempts
        self.problem = run.header.problem
        self.workshop = workshop

    def judge(self, draft: Draft, *, sanitize: bool) -> Attempt:
        """Return the attempt made from a draft. `sanitize`: whether a new best or crashed program is sanitized."""
        move, advice, answer = draft.move, draft.advice, draft.answer
        unchanged = self._why_unchanged(answer)
        evaluation = None
        if answer.candidate is not None:
            evaluation = self._evaluate_with_retry(answer.candidate, is_original=unchanged is not None)
        if evaluation is not None and (made := (*(advice.labels if advice else ()), *answer.labels)):
            evaluation = evaluation.model_copy(update={"labels": (*evaluation.labels, *made)})
        attempt = Attempt(
            index=self.index,
            phase="optimization" if isinstance(move, Optimize) else "functional",
            parent=move.parent.index if isinstance(move, Repair | Optimize) else None,
            profile=draft.profile,
            recommendation=advice.recommendation if advice else None,
            others=advice.others if advice else (),
            candidate=answer.candidate,
            unchanged=unchanged,
            evaluation=evaluation,
            failure=answer.failure,
            requests=(*(advice.requests if advice else ()), *answer.requests),
            remarks=(*(advice.remarks if advice else ()), *answer.remarks),
            usage=advice.usage + answer.usage if advice else answer.usage,
        )
        attempt = HeadToHeads(self.run, self.workshop.judge, self.workshop.quiet).compared(attempt, self.attempts)
        attempt = Profiles(self.run, self.workshop).why_slower(attempt, draft.profile)
        if sanitize and isinstance(attempt.verdict, RuntimeFailure) and attempt.verdict.crashed:
            return self._crash_explained(attempt, attempt.verdict)
        if sanitize and best_attempt([*self.attempts, attempt]) is attempt:
            attempt = self._sanitized(attempt)
        return attempt

    def _why_unchanged(self, answer: Answer) -> str | None:
        """Return why the program is the original module unchanged; None if it is another program.

        The reason is the agent's own, or that the program computes only with the problem's own classes.
        """
        candidate = answer.candidate
        if answer.unchanged is None and candidate is not None and is_unchanged(self.problem.source, candidate.source):
            return UNCHANGED
        return answer.unchanged

    def _evaluate_with_retry(self, candidate: Candidate, *, is_original: bool) -> Evaluation:
        """Return the evaluation of a program. If it was disturbed, measure again in a quieter moment, unless the
        program is the original module: its speed is of no interest."""
        judge = self.workshop.judge

        def evaluate() -> Evaluation:
            try:
                return judge.evaluate(self.problem, candidate, is_original=is_original)
            except EvaluationError:
                # the evaluator failed, not the candidate: try once more, with a fresh referee
                return judge.evaluate(self.problem, candidate, is_original=is_original)

        first = self._once("evaluation", Evaluation, candidate, evaluate)
        if is_original or not is_disturbed(first) or not self._may_measure_again(candidate):
            return first
        again = self._once(MEASURED_AGAIN, Evaluation, candidate, evaluate)
        if is_disturbed(again):
            return first
        return again.model_copy(update={"labels": (*again.labels, LABEL)})

    def _may_measure_again(self, candidate: Candidate) -> bool:
        """Return whether a quieter moment came, in this session or in one that was killed afterwards."""
        done = self.run.stage(self.index, MEASURED_AGAIN, Evaluation, candidate.digest)
        return done is not None or self.workshop.quiet.came()

    def _crash_explained(self, attempt: Attempt, died: RuntimeFailure) -> Attempt:
        """Return an attempt whose program died, with what the sanitizers say about it: the next repair reads the
        kernel's line."""
        assert attempt.candidate is not None
        assert attempt.evaluation is not None
        verdict = self._under_sanitizers(attempt.candidate).explained(died)
        return attempt.model_copy(update={"evaluation": attempt.evaluation.model_copy(update={"verdict": verdict})})

    def _under_sanitizers(self, candidate: Candidate) -> Sanitization:
        sanitize = partial(self.workshop.judge.sanitize, self.problem, candidate)
        return self._once("sanitization", Sanitization, candidate, sanitize)

    def _sanitized(self, attempt: Attempt) -> Attempt:
        """Return the attempt after the sanitizers. A finding becomes its verdict, which the next repair reads."""
        candidate, evaluation = attempt.candidate, attempt.evaluation
        assert candidate is not None
        assert evaluation is not None
        outcome = self._under_sanitizers(candidate).outcome
        match outcome:
            case SanitizerFinding():
                update: dict[str, object] = {"verdict": outcome.failure}
            case SanitizedClean():
                update = {"labels": (*evaluation.labels, "sanitized")}
            case _:
                return attempt
        return attempt.model_copy(update={"evaluation": evaluation.model_copy(update=update)})

    def _once(self, name: str, kind: type[R], candidate: Candidate, make: Callable[[], R]) -> R:
        return once(self.run, self.index, name, kind, candidate, make)

"""One iteration of the loop: profile and recommend, generate, evaluate, compare with the best."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError
from kforge.loop.proving import HeadToHeads
from kforge.loop.workshop import R, once
from kforge.problems.originality import UNCHANGED, is_unchanged
from kforge.records import (
    Attempt,
    Correct,
    Evaluation,
    Profile,
    Sanitization,
    SanitizedClean,
    SanitizerFinding,
    best_attempt,
)
from kforge.search import Optimize, Repair, next_move

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.agents import Advice, Answer
    from kforge.loop.limits import RunLimits
    from kforge.loop.workshop import Workshop
    from kforge.records import Candidate
    from kforge.search import Move
    from kforge.store import RunFolder

BELIEVABLE_SHARE = 1.2
"""A share of the roofline above this shows that the roofline is wrong (data in a cache, peaks measured on a busy
machine), not that the program cannot be improved."""


class NearRoofline(Exception):
    """Raised when the best program is nearly as fast as the roofline allows."""


class Iteration:
    """One iteration: profile and recommend where there is something to improve, generate, evaluate."""

    def __init__(self, run: RunFolder, workshop: Workshop, attempts: Sequence[Attempt]) -> None:
        self.run = run
        self.index = len(attempts)
        self.attempts = attempts
        self.problem = run.header.problem
        self.workload = run.header.workload
        self.workshop = workshop

    def carry_out(self, limits: RunLimits) -> Attempt:
        start = time.monotonic()
        move = next_move(self.attempts)
        profile, advice = None, None
        if isinstance(move, Optimize):
            profile = self._profile(move.parent)
            if limits.roofline_share <= profile.roofline_share <= BELIEVABLE_SHARE:
                raise NearRoofline(f"near the roofline: {profile.roofline_share:.0%} of what the device allows")
            advice = self._recommend(move, profile)
        answer = self._generate(move, advice)
        evaluation = self._evaluate_with_retry(answer.candidate) if answer.candidate is not None else None
        if evaluation is not None and (made := (*(advice.labels if advice else ()), *answer.labels)):
            evaluation = evaluation.model_copy(update={"labels": (*evaluation.labels, *made)})
        attempt = Attempt(
            index=self.index,
            phase="optimization" if isinstance(move, Optimize) else "functional",
            parent=move.parent.index if isinstance(move, Repair | Optimize) else None,
            profile=profile,
            recommendation=advice.recommendation if advice else None,
            candidate=answer.candidate,
            unchanged=self._why_unchanged(answer),
            evaluation=evaluation,
            failure=answer.failure,
            requests=(*(advice.requests if advice else ()), *answer.requests),
            remarks=(*(advice.remarks if advice else ()), *answer.remarks),
            usage=advice.usage + answer.usage if advice else answer.usage,
        )
        attempt = HeadToHeads(self.run, self.workshop.judge).compared(attempt, self.attempts)
        if limits.sanitize and best_attempt([*self.attempts, attempt]) is attempt:
            attempt = self._sanitized(attempt)
        return attempt.model_copy(update={"seconds": round(time.monotonic() - start, 3)})

    def _profile(self, parent: Attempt) -> Profile:
        for attempt in self.attempts:
            if attempt.parent == parent.index and attempt.profile is not None:
                return attempt.profile
        candidate, verdict = parent.candidate, parent.verdict
        assert candidate is not None
        assert isinstance(verdict, Correct)
        seconds = verdict.timing.seconds.median if verdict.timing is not None else 0.0
        judge = self.workshop.judge
        return self._once("profile", Profile, candidate, lambda: judge.profile(self.problem, candidate, seconds))

    def _recommend(self, move: Optimize, profile: Profile) -> Advice:
        assert move.parent.candidate is not None
        self.workshop.watch("asking the performance analysis agent")
        analyst = self.workshop.analyst.at(self.index, self.attempts)
        return analyst.recommend(self.problem, self.workload, move.parent.candidate, profile, move.tried)

    def _generate(self, move: Move, advice: Advice | None) -> Answer:
        generator = self.workshop.generator.at(self.index, self.attempts)
        self.workshop.watch("asking the generation agent")
        if isinstance(move, Optimize):
            candidate, best = move.parent.candidate, move.parent.verdict
            assert advice is not None
            assert candidate is not None
            assert isinstance(best, Correct)
            return generator.optimize(self.problem, self.workload, candidate, best, advice.recommendation, move.tried)
        if isinstance(move, Repair):
            verdict = move.parent.verdict
            assert not isinstance(verdict, Correct)
            return generator.repair(self.problem, self.workload, move.parent.candidate, verdict, repeats=move.repeats)
        return generator.write(self.problem, self.workload)

    def _why_unchanged(self, answer: Answer) -> str | None:
        """Why the program is the original unchanged: the agent's own reason, or that the texts are equal. Else None."""
        candidate = answer.candidate
        if answer.unchanged is None and candidate is not None and is_unchanged(self.problem.source, candidate.source):
            return UNCHANGED
        return answer.unchanged

    def _evaluate_with_retry(self, candidate: Candidate) -> Evaluation:
        judge = self.workshop.judge

        def evaluate() -> Evaluation:
            try:
                return judge.evaluate(self.problem, candidate)
            except EvaluationError:
                # the evaluator, not the candidate, failed: one more try with a fresh referee
                return judge.evaluate(self.problem, candidate)

        return self._once("evaluation", Evaluation, candidate, evaluate)

    def _sanitized(self, attempt: Attempt) -> Attempt:
        """Return the attempt after the sanitizers. A finding becomes its verdict, which the next repair reads."""
        candidate, evaluation = attempt.candidate, attempt.evaluation
        assert candidate is not None
        assert evaluation is not None
        sanitize = partial(self.workshop.judge.sanitize, self.problem, candidate)
        outcome = self._once("sanitization", Sanitization, candidate, sanitize).outcome
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

"""The loop: functional passes until a program is correct, then optimization passes; a generator of attempts.

    F: (problem, k[t-1], r[t-1]) → k[t]        the generation agent
    G: profile of k[t-1] → r[t-1]              the performance analysis agent

Every finished stage is in the run folder before the next begins, and every decision follows from the attempts alone:
a run that is killed at any point goes on as if nothing had happened, and repeats nothing that was finished.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kforge.errors import CallRefused, EvaluationError, NothingLeft, RecordingExhausted
from kforge.problems.originality import UNCHANGED, is_unchanged
from kforge.records import (
    Attempt,
    Correct,
    Disproof,
    Evaluation,
    HeadToHead,
    Outcome,
    Profile,
    Record,
    Replication,
    Sanitization,
    SanitizedClean,
    SanitizerFinding,
    Usage,
    best_attempt,
    recorded,
    why_no_kernel,
)
from kforge.search import Optimize, Repair, next_move

if TYPE_CHECKING:
    import collections.abc
    from collections.abc import Callable, Sequence

    from kforge.agents import Advice, Analyst, Answer, Generator
    from kforge.evaluation import Judge
    from kforge.records import Candidate, Comparison
    from kforge.search import Move
    from kforge.store import RunFolder

R = TypeVar("R", bound=Record)

BELIEVABLE_SHARE = 1.2
"""A share of the roofline above this shows that the roofline is wrong (data in a cache, peaks measured on a busy
machine), not that the program cannot be improved."""


@dataclass(frozen=True)
class RunLimits:
    """When to stop. Zero means no limit, except for iterations."""

    iterations: int
    target_speedup: float = 0.0
    budget_seconds: float = 0.0
    budget_usd: float = 0.0
    roofline_share: float = 0.9
    """The loop stops above this share of the roofline: little can be gained."""
    replications: int = 3
    """Number of repeated evaluations of the program that would be reported best."""
    sanitize: bool = True
    """Whether a new best program must first pass the platform's sanitizers."""

    def reached(self, attempts: Sequence[Attempt]) -> str | None:
        """Return why the loop must stop now, or None."""
        best = best_attempt(attempts)
        usage = sum((attempt.usage for attempt in attempts), Usage())
        if best is not None and self._is_target(best.comparisons):
            return self._target_reached
        if best is not None and best.untimed is not None:
            return f"a program is correct, and its speed cannot be measured: {best.untimed}"
        if len(attempts) >= self.iterations:
            return f"{self.iterations} iteration{'s' * (self.iterations > 1)} done"
        if 0 < self.budget_seconds <= sum(attempt.seconds for attempt in attempts):
            return f"budget of {self.budget_seconds / 60:g} minutes spent"
        if self.budget_usd > 0 and usage.requests:
            if usage.cost_usd is None:
                return "budget cannot be kept: the price of this model is not known"
            if usage.cost_usd >= self.budget_usd:
                return f"budget of {self.budget_usd:g} USD spent"
        return None

    def confirmed(self, stopped: str, best: Attempt | None, replication: Replication | None) -> str:
        """Return why the loop stopped, after the best program was evaluated again: it may now miss the target."""
        if stopped != self._target_reached:
            return stopped
        if best is None or not self._is_target(best.comparisons):
            return f"{stopped} by a program that did not stay correct"
        if replication is None or self._is_target(replication.comparisons):
            return stopped
        return f"{stopped} in one evaluation, not confirmed by {len(replication.evaluations)} further ones"

    @property
    def _target_reached(self) -> str:
        return f"target speedup {self.target_speedup:g} reached"

    def _is_target(self, comparisons: Sequence[Comparison]) -> bool:
        """Return whether the program is proven faster than eager by at least the target."""
        return bool(comparisons) and (
            0 < self.target_speedup <= comparisons[0].speedup.low and comparisons[0].finding == "faster"
        )


@dataclass(frozen=True)
class Workshop:
    """What works on a run: the generation agent F, the analysis agent G, and the judge."""

    generator: Generator
    analyst: Analyst
    judge: Judge
    watch: Callable[[str], None] = lambda _: None
    """Gets short progress reports, for a live display."""


def forge(
    run: RunFolder, workshop: Workshop, limits: RunLimits, began: float | None = None
) -> collections.abc.Generator[Attempt, None, Outcome]:
    """Make attempts until a limit is reached. Yields each attempt when it is on disk, and returns the outcome.

    `began`: when the session began, by `time.monotonic`; now if absent. Raises WaitingForReplies when a request has no
    reply yet, and ProviderError or EvaluationError for a failure that retries did not cure; in each case the run can be
    resumed.
    """
    attempts = list(run.attempts())
    clock = _Clock(time.monotonic() if began is None else began, attempts[-1].elapsed if attempts else 0.0)
    while (stopped := limits.reached(attempts)) is None:
        iteration = Iteration(run, workshop, attempts)
        try:
            attempt = iteration.carry_out(limits)
        except NearRoofline as near:
            stopped = str(near)
            break
        except (RecordingExhausted, NothingLeft, CallRefused) as end:
            stopped = str(end)
            break
        attempt = attempt.model_copy(update={"elapsed": clock.in_all()})
        run.commit(attempt)
        attempts.append(attempt)
        yield attempt
    best, replication, disproved = Prover(run, workshop, limits.replications).prove(attempts)
    outcome = Outcome(
        stopped=limits.confirmed(stopped, best, replication),
        best=best.index if best else None,
        no_kernel=None if best or disproved else why_no_kernel(attempts),
        replication=replication,
        disproved=disproved,
        usage=sum((attempt.usage for attempt in attempts), Usage()),
        seconds=clock.in_all(),
        session_seconds=clock.this_session(),
    )
    run.finish(outcome)
    return outcome


@dataclass(frozen=True)
class _Clock:
    """Measures the run's wall time over all sessions."""

    began: float
    """When this session began, by `time.monotonic`."""
    earlier: float
    """Seconds of earlier sessions."""

    def this_session(self) -> float:
        return round(time.monotonic() - self.began, 3)

    def in_all(self) -> float:
        return round(self.earlier + self.this_session(), 3)


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
        self.workshop.generator.step = self.workshop.analyst.step = self.index
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
            requests=(*(advice.requests if advice else ()), answer.request),
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
        return self.workshop.analyst.recommend(self.problem, self.workload, move.parent.candidate, profile, move.tried)

    def _generate(self, move: Move, advice: Advice | None) -> Answer:
        generator = self.workshop.generator
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
        return _once(self.run, self.index, name, kind, candidate, make)


class HeadToHeads:
    """Times attempts against each other, each pair once in a run."""

    def __init__(self, run: RunFolder, judge: Judge) -> None:
        self.run = run
        self.judge = judge

    def compared(self, attempt: Attempt, earlier: Sequence[Attempt]) -> Attempt:
        """Return the attempt with the finding of its program against the best earlier one, if both can be timed."""
        best = best_attempt(earlier)
        if best is None or not attempt.is_kernel or attempt.untimed is not None or best.untimed is not None:
            return attempt
        return attempt.model_copy(update={"rival": best.index, "head_to_head": self.hold(attempt, best)})

    def hold(self, challenger: Attempt, best: Attempt) -> HeadToHead:
        """Return the finding of a challenger against the best. Raises EvaluationError when the evaluator fails twice.

        The same program again is as fast as itself, and nothing is timed.
        """
        candidate, rival = challenger.candidate, best.candidate
        assert candidate is not None
        assert rival is not None
        if candidate == rival:
            return HeadToHead(finding="undecided", reason="it is the same program")
        judge, problem = self.judge, self.run.header.problem

        def compare() -> HeadToHead:
            try:
                return judge.head_to_head(problem, candidate, rival)
            except EvaluationError:
                return judge.head_to_head(problem, candidate, rival)  # the evaluator failed: a fresh referee tries

        return _once(self.run, challenger.index, f"against_{best.index}", HeadToHead, candidate, compare)

    def recorded_or_held(self, challenger: Attempt, best: Attempt) -> HeadToHead:
        """Return the finding that the attempt records; where it had another rival, that of a new head-to-head."""
        return recorded(challenger, best) or self.hold(challenger, best)


class Prover:
    """Evaluates the best attempt again. It is reported only if it stays correct every time."""

    def __init__(self, run: RunFolder, workshop: Workshop, times: int) -> None:
        self.run = run
        self.workshop = workshop
        self.times = times

    def prove(self, attempts: Sequence[Attempt]) -> tuple[Attempt | None, Replication | None, tuple[Disproof, ...]]:
        """Return the best attempt that stays correct, its repetitions, and the attempts before it that did not stay
        correct."""
        left, disproved = list(attempts), list[Disproof]()
        compare = recorded
        while (best := best_attempt(left, compare)) is not None and self.times:
            # more repetitions than one only narrow the interval of a speed
            replication = self._replicate(best, self.times if best.untimed is None else 1)
            if (failure := replication.failure) is None:
                return best, replication, tuple(disproved)
            reason = f"{failure.state.replace('_', ' ')}: {getattr(failure, 'reason', '')}"
            disproved.append(Disproof(attempt=best.index, reason=reason))
            left.remove(best)
            # what lost to the removed program may be faster than those that are left
            compare = HeadToHeads(self.run, self.workshop.judge).recorded_or_held
        return best, None, tuple(disproved)

    def _replicate(self, attempt: Attempt, times: int) -> Replication:
        candidate = attempt.candidate
        assert candidate is not None
        evaluations: list[Evaluation] = []
        judge, watch = self.workshop.judge, self.workshop.watch
        try:
            for number in range(1, times + 1):
                told = f"evaluating attempt {attempt.index} again, {number} of {times}"
                watch(told)
                judge.on_stage = partial(_tell, watch, told)
                evaluate = partial(judge.repeat, self.run.header.problem, candidate)
                stage = f"replication_{number}"
                evaluations.append(_once(self.run, attempt.index, stage, Evaluation, candidate, evaluate))
                if evaluations[-1].correct is None:
                    break  # one failure is enough
        finally:
            judge.on_stage = watch
        return Replication(evaluations=tuple(evaluations))


def _tell(watch: Callable[[str], None], stage: str, detail: str) -> None:
    watch(f"{stage}: {detail}")


def _once(run: RunFolder, index: int, name: str, kind: type[R], candidate: Candidate, make: Callable[[], R]) -> R:
    """Return a stage's result; a finished stage of this candidate is not repeated after a kill."""
    done = run.stage(index, name, kind, candidate.digest)
    if done is None:
        done = make()
        run.put_stage(index, name, done, candidate.digest)
    return done

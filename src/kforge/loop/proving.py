"""Compares programs directly, and evaluates the best one again before it is reported."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kforge.errors import EvaluationError
from kforge.loop.quiet import QuietMoments, is_disturbed
from kforge.loop.workshop import once
from kforge.records import Disproof, Evaluation, HeadToHead, Replication, best_attempt, recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kforge.evaluation import Judge
    from kforge.loop.workshop import Workshop
    from kforge.records import Attempt
    from kforge.store import RunFolder


class HeadToHeads:
    """Times attempts against each other, each pair once in a run."""

    def __init__(self, run: RunFolder, judge: Judge, quiet: QuietMoments | None = None) -> None:
        """`quiet`: waits for a quieter moment if other processes left a pair undecided."""
        self.run = run
        self.judge = judge
        self.quiet = quiet or QuietMoments()

    def compared(self, attempt: Attempt, earlier: Sequence[Attempt]) -> Attempt:
        """Return the attempt with the result of timing its program head to head against the best earlier one.

        Returns the attempt unchanged if it is not a correct kernel, if no earlier one is, or if one of the two programs
        cannot be timed.
        """
        best = best_attempt(earlier)
        if best is None or not attempt.is_kernel or attempt.untimed is not None or best.untimed is not None:
            return attempt
        return attempt.model_copy(update={"rival": best.index, "head_to_head": self.hold(attempt, best)})

    def hold(self, challenger: Attempt, best: Attempt) -> HeadToHead:
        """Return the result of timing a challenger against the best. Raises EvaluationError when the evaluator fails
        twice.

        If both are the same program, nothing is timed, and the finding is undecided.
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

        stage = f"against_{best.index}"
        first = once(self.run, challenger.index, stage, HeadToHead, candidate, compare)
        again = f"{stage}_again"
        is_done = self.run.stage(challenger.index, again, HeadToHead, candidate.digest) is not None
        if not is_disturbed(first) or not (is_done or self.quiet.came()):
            return first
        second = once(self.run, challenger.index, again, HeadToHead, candidate, compare)
        return first if is_disturbed(second) else second

    def recorded_or_held(self, challenger: Attempt, best: Attempt) -> HeadToHead:
        """Return the head-to-head that the attempt records; a new one if it records none against this rival."""
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
            # repetitions after the first only narrow the interval of a speedup, which an untimed program does not have
            replication = self._replicate(best, self.times if best.untimed is None else 1)
            if (failure := replication.failure) is None:
                return best, replication, tuple(disproved)
            reason = f"{failure.state.replace('_', ' ')}: {getattr(failure, 'reason', '')}"
            disproved.append(Disproof(attempt=best.index, reason=reason))
            left.remove(best)
            # a program that lost to the removed one may be faster than the others that are left
            compare = HeadToHeads(self.run, self.workshop.judge, self.workshop.quiet).recorded_or_held
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
                evaluations.append(once(self.run, attempt.index, stage, Evaluation, candidate, evaluate))
                if evaluations[-1].correct is None:
                    break  # one failure is enough
        finally:
            judge.on_stage = watch
        return Replication(evaluations=tuple(evaluations))


def _tell(watch: Callable[[str], None], stage: str, detail: str) -> None:
    watch(f"{stage}: {detail}")

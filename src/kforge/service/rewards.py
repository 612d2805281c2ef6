"""The reward of a program, for reinforcement learning.

The reward is the lower bound of the 95 % interval of the speedup over eager. It is zero for a program that failed, is
wrong or was rejected, for one whose measurement was disturbed or not made, and for the original module unchanged: in
each case nothing was shown to be gained. It cannot be raised by noise, because noise widens the interval and lowers its
bound; and a program cannot report it, because only the referee measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kforge.problems.originality import is_unchanged
from kforge.records import Correct

if TYPE_CHECKING:
    from kforge.records import Candidate, Evaluation, Problem


class Reward(NamedTuple):
    """A reward, and why it is what it is."""

    value: float
    reason: str


def reward(problem: Problem, candidate: Candidate | None, evaluation: Evaluation | None) -> Reward:
    """Return the reward of an evaluated program; zero where there is no program."""
    if candidate is None or evaluation is None:
        return Reward(0.0, "no program")
    verdict = evaluation.verdict
    if not isinstance(verdict, Correct):
        return Reward(0.0, verdict.state.replace("_", " "))
    if is_unchanged(problem.source, candidate.source):
        return Reward(0.0, "the original module, unchanged")
    if not verdict.comparisons:
        return Reward(0.0, f"not timed: {verdict.untimed}")
    eager = verdict.comparisons[0]
    if eager.doubt is not None:
        return Reward(0.0, f"the measurement was disturbed: {eager.doubt}")
    return Reward(eager.speedup.low, "lower bound of the speedup over eager")

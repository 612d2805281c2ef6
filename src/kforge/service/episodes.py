"""Episodes for reinforcement learning: the action is a program, the observation is its verdict."""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING, Any

from pydantic import Field

from kforge import documents
from kforge.errors import InputError
from kforge.records import Record
from kforge.service.rewards import reward

if TYPE_CHECKING:
    from kforge.service.evaluations import EvaluationService


class KernelAction(Record):
    """The action of one step: a program to be judged."""

    source: str
    """A whole Python file with a class `ModelNew`."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Any data of the client; it is not read."""


class EpisodeState(Record):
    """The progress of an episode."""

    episode_id: str = ""
    step_count: int = 0
    problem: str = ""
    best_reward: float = 0.0
    done: bool = False


class Episode:
    """One client's work on one problem: a task, then programs and their verdicts."""

    def __init__(self, service: EvaluationService, steps: int) -> None:
        """`steps`: number of programs that are judged in an episode."""
        self.service = service
        self.steps = steps
        self.state = EpisodeState()

    def reset(self, problem: str = "", seed: int | None = None, episode_id: str = "") -> dict[str, Any]:
        """Begin an episode and return its task. Raises InputError for an unknown problem.

        Without a name, the problem is drawn at random; the same `seed` draws the same problem.
        """
        name = problem or random.Random(seed).choice(sorted(self.service.problems))  # noqa: S311 - no secret
        prompt = self.service.task_prompt(name)
        self.state = EpisodeState(episode_id=episode_id or secrets.token_hex(8), problem=name)
        task = {"state": "task", "problem": name, "platform": self.service.platform.name, "prompt": prompt}
        return {"observation": {**task, "steps_left": self.steps}, "reward": None, "done": False}

    def step(self, action: KernelAction) -> dict[str, Any]:
        """Judge a program and return its verdict and reward. An empty or too large text is a failed step.

        Raises InputError before `reset` and after the last step.
        """
        before = self.state
        if not before.problem:
            raise InputError("no episode has begun: send reset first")
        if before.done:
            raise InputError(f"the episode had its {self.steps} steps: send reset for another one")
        verdict, gained, why = self._judged(action.source)
        done = before.step_count + 1 >= self.steps
        best = max(before.best_reward, gained)
        self.state = before.model_copy(update={"step_count": before.step_count + 1, "best_reward": best, "done": done})
        left = {"problem": before.problem, "reward_reason": why, "steps_left": self.steps - self.state.step_count}
        return {"observation": {**verdict, **left}, "reward": gained, "done": done}

    def _judged(self, source: str) -> tuple[dict[str, Any], float, str]:
        """Return the verdict as a document, the reward, and the reason for it."""
        name = self.state.problem
        try:
            candidate = self.service.candidate(source)
        except InputError as error:
            return {"state": "generation_failure", "reason": str(error)}, 0.0, "no program"
        evaluation = self.service.evaluate(name, source)
        gained, why = reward(self.service.problem(name), candidate, evaluation)
        return documents.evaluation(evaluation), gained, why

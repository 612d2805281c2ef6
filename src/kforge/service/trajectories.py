"""Trajectories of finished runs as JSON Lines, one line for an attempt, for training.

A line holds the messages of each model call with the reply, the program, the verdict and the reward. Replies come from
the run's exchange; a program that the built-in generator or a client wrote has no messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge import documents
from kforge.errors import RunError
from kforge.models import Exchange
from kforge.service.rewards import reward

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.models import Reply, Request
    from kforge.records import Attempt
    from kforge.store import RunFolder

FORMAT = 1
"""The layout of a line; a later layout gets the next number."""


def trajectory(run: RunFolder) -> Iterator[dict[str, Any]]:
    """Yield a document for each attempt of a finished run. Raises RunError for a run that is damaged or goes on."""
    outcome = run.outcome()
    if outcome is None:
        raise RunError(f"run {run.id} is not finished; `kforge resume` goes on with it")
    answered = {request.identity: (request, reply) for request, reply in Exchange(run.exchange).answered()}
    attempts = run.attempts()
    disproved = {each.attempt: each.reason for each in outcome.disproved}
    for attempt in attempts:
        yield {
            "format": FORMAT,
            "run": run.id,
            "problem": {"name": run.header.problem.name, "digest": run.header.problem.digest},
            "platform": run.header.platform,
            "model": run.header.model,
            "step": attempt.index,
            "phase": attempt.phase,
            **({"parent": attempt.parent} if attempt.parent is not None else {}),
            "calls": [_call(*answered[each]) for each in attempt.requests if each in answered],
            **({"source": attempt.candidate.source} if attempt.candidate is not None else {}),
            "observation": documents.attempt(attempt),
            **_rewarded(run, attempt, disproved.get(attempt.index)),
            "best": outcome.best == attempt.index,
            "done": attempt.index == len(attempts) - 1,
        }


def _call(request: Request, reply: Reply) -> dict[str, Any]:
    """Return one model call: its messages, with their measured values, and the reply."""
    return {
        "agent": request.agent,
        "messages": [{"role": message.role, "content": message.text} for message in request.messages],
        "images": len(request.images),
        "reply": {"content": reply.text, "model": reply.model, "finish": reply.finish},
    }


def _rewarded(run: RunFolder, attempt: Attempt, disproved: str | None) -> dict[str, Any]:
    """Return the reward and its reason. A program that did not stay correct gets a reward of 0."""
    if disproved is not None:
        return {"reward": 0.0, "reward_reason": f"it did not stay correct: {disproved}"}
    value, reason = reward(run.header.problem, attempt.candidate, attempt.evaluation)
    return {"reward": value, "reward_reason": reason}

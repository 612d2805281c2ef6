"""Reads the whole story of one problem from its run: prompts, replies, programs, messages, profiles and receipts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.models import Exchange
from kforge.records import Usage
from kforge.report.rows import attempt_row
from kforge.report.views import AttemptStory, CallView, Story

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.records import Attempt
    from kforge.report.views import ProblemRow
    from kforge.store import Header, RunFolder

ONLY_BEST = "This story has only the best program, or the last one. `kforge report --stories all` shows every attempt."
"""Note in a story that has only one attempt."""


def read_story(run: RunFolder, row: ProblemRow, *, whole: bool = True) -> Story:
    """Return the story of a problem from its run, as far as the run has come.

    `whole`: every attempt with its prompts and replies; otherwise only the best attempt, or the last one where none is
    correct, without them. Raises RunError if the run is damaged.
    """
    attempts, best = run.attempts(), run.best()
    chosen: Sequence[Attempt] = attempts
    if not whole:
        chosen = [best] if best is not None else attempts[-1:]
    calls = _calls(run) if whole else {}
    outcome = run.outcome()
    again = outcome.replication if outcome is not None else None
    return Story(
        row=row,
        problem=run.header.problem.source,
        facts=tuple(_facts(run.header)),
        attempts=tuple(_attempt_story(attempt, attempts, calls) for attempt in chosen),
        best=best.index if best is not None else None,
        repetitions=again.evaluations if again is not None else (),
        stopped=outcome.stopped if outcome is not None else "",
        left_out="" if whole or len(attempts) <= 1 else ONLY_BEST,
    )


def _attempt_story(attempt: Attempt, all_of_them: Sequence[Attempt], calls: dict[int, list[CallView]]) -> AttemptStory:
    before = all_of_them[attempt.parent].candidate if attempt.parent is not None else None
    return AttemptStory(
        row=attempt_row(attempt),
        calls=tuple(calls.get(attempt.index, ())),
        program=attempt.candidate.source if attempt.candidate is not None else None,
        before=before.source if before is not None else None,
        log=getattr(attempt.verdict, "log", ""),
        profile=attempt.profile,
        recommendation=attempt.recommendation,
        others=attempt.others,
        why_slower=attempt.why_slower,
        evaluation=attempt.evaluation,
        rival=attempt.rival,
        remarks=attempt.remarks,
    )


def _calls(run: RunFolder) -> dict[int, list[CallView]]:
    """Return the questions of a run by the attempt that they were asked for, in the order of asking."""
    answers = {name: reply for name, _, reply in Exchange(run.exchange).calls()}
    found: dict[int, list[CallView]] = {}
    for question in Exchange(run.exchange).questions():
        request, reply = question.request, answers.get(question.name)
        call = CallView(
            name=question.name,
            agent=request.agent,
            model=reply.model if reply is not None else request.model,
            messages=tuple((message.role, message.text) for message in request.messages),
            images=len(request.images),
            reply=reply.text if reply is not None else None,
            usage=reply.usage if reply is not None else Usage(),
            seconds=reply.seconds if reply is not None else 0.0,
            notes=reply.notes if reply is not None else (),
        )
        found.setdefault(request.step, []).append(call)
    return found


def _facts(header: Header) -> Iterator[tuple[str, str]]:
    yield "run", header.id
    yield "began", header.created
    yield "platform", header.platform
    yield "model", header.model
    if header.analyst != header.model:
        yield "analyst", header.analyst
    yield "kforge", header.version
    for name, value in sorted(header.options.items()):
        if name not in ("platform", "model", "analyst") and value not in ("", None):
            yield name.replace("_", " "), str(value)

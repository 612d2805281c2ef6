"""Prints how a run went: its attempts, its best program, why it stopped; or the questions that it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.cli.output import words
from kforge.cli.output.display import attempts_table
from kforge.cli.output.lines import say, say_table
from kforge.models import Exchange
from kforge.visible import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.models import Question
    from kforge.records import Attempt, Outcome
    from kforge.store import RunFolder


def waiting_document(questions: Sequence[Question]) -> dict[str, list[str]]:
    """Return the part of a `--json` document about questions that wait for replies: their prompts, and the reply files
    that are empty."""
    empty = [str(each.reply) for each in questions if each.state == "empty reply"]
    return {"waiting": [str(each.prompt) for each in questions], **({"empty_replies": empty} if empty else {})}


def print_outcome(run: RunFolder, outcome: Outcome | None) -> None:
    attempts, best, reported = list(run.attempts()), run.best(), run.reported()
    title = f"{run.header.problem.name} on {run.header.platform} with {run.header.model}"
    if attempts:
        say_table(attempts_table(attempts, title))
    else:
        say(f"{title}: no attempt yet")
    if outcome is not None:
        for line in words.disproofs(outcome):
            say(line)
        if outcome.no_kernel is not None:
            say(f"no kernel found: {outcome.no_kernel}")
    if best is not None and reported is not None and reported.correct is not None:
        for line in words.best(best, reported.correct, outcome):
            say(line)
        for line in words.conditions(reported.receipt):
            say(line)
        if reported.labels:
            say(f"labels: {', '.join(reported.labels)}")
        path = run.best_path
        say(f"kernel: {path or 'no file of the run holds the program that was measured'}")
        if path is None or path.name != "best.py":
            say(f"not the kernel: {run.path / 'best.py'} is another program than the one that was measured")
    for remark in _remarks(run, attempts):
        say(remark)
    for line in _ending(run, outcome):
        say(line)


def _remarks(run: RunFolder, attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield what a user must know about the models of a run, a line each."""
    yield from words.remarks(attempts)
    yield from Exchange(run.exchange).notes()


def _ending(run: RunFolder, outcome: Outcome | None) -> Iterator[str]:
    """Yield why a run stopped, how to continue it if its budget was spent, and the path of its folder."""
    if outcome is not None:
        yield words.ended(outcome)
        if outcome.is_budget_spent:
            yield f"to go on: {command('kforge', 'resume', run.path)} and a larger --budget-…"
    yield f"run: {run.path}"

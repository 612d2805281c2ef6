"""`show`, `runs` and `platforms`: print runs, suites and platforms."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from kforge import platforms as registry
from kforge import settings
from kforge.cli.output import documents, words
from kforge.cli.output.diffs import of_attempts, say_diff
from kforge.cli.output.ledgers import print_ledger
from kforge.cli.output.lines import note, say
from kforge.cli.output.outcomes import print_outcome, waiting_document
from kforge.cli.output.sparklines import timing_lines
from kforge.cli.trusting import NOT_OURS, say_whose, whose
from kforge.errors import InputError, RunError
from kforge.models import Exchange
from kforge.records import as_json
from kforge.store import (
    RunFolder,
    RunSummary,
    SuiteFolder,
    derived,
    find_folder,
    index_url,
    list_runs,
    short_id,
    suite_paths,
)
from kforge.store.folder import run_paths
from kforge.suite.results import questions_of
from kforge.visible import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kforge.models import Question
    from kforge.settings import Settings
    from kforge.store import Key, Listing

IN_MEMORY = "sqlite://"
"""URL of an index in memory, for a folder in which no index can be written."""


def show(name: str | None, *, root: Path | None, diff: bool = False, json: bool) -> int:
    """Show a run or a suite; the latest one if no name is given. With `diff`, also show what each program changed.

    Raises RunError if there is no such run, and InputError if the folder `root` does not exist.
    """
    chosen = settings.load()
    root = _root(root, chosen)
    if name is None:
        name = latest(root)
        if not json:
            say(f"the latest in {root}: {name}")
    run = find_folder(root, name)
    if isinstance(run, SuiteFolder):
        from kforge.cli import suites

        return suites.show(run, chosen.signing_key, json=json)
    is_ours = run.is_all_signed(chosen.signing_key)
    status, questions = run.status(), Exchange(run.exchange).waiting()
    if json:
        document = documents.run(run, run.outcome()) | whose(is_ours=is_ours)
        unfinished = waiting_document(questions) if questions else {"status": status}
        documents.print_json(document if status == "finished" else {**document, **unfinished})
        return 0
    print_outcome(run, run.outcome())
    best = run.best()
    if sys.stdout.isatty() and best is not None and best.evaluation is not None:
        for line in timing_lines(best.evaluation.receipt):
            say(line)
    say_whose(is_ours=is_ours)
    for attempt in run.attempts():
        if attempt.recommendation is not None:
            say(f"recommendation of attempt {attempt.index}: {attempt.recommendation.action}")
    print_ledger(run)
    if diff:
        for difference in of_attempts(run.attempts()):
            say_diff(difference)
    for line in _how_to_go_on(run, status, questions):
        say(line)
    return 0


def latest(root: Path) -> str:
    """Return the id of the run or suite that was begun last. Raises RunError if no run was begun yet."""
    ids = sorted(path.name for path in (*run_paths(root), *suite_paths(root)))
    if not ids:
        raise RunError(f"no runs in {root}; `kforge forge PROBLEM` begins one, and -o names another folder")
    return ids[-1]


def _how_to_go_on(run: RunFolder, status: str, questions: Sequence[Question]) -> Iterator[str]:
    """Yield lines that say how to continue a run; nothing for a finished run."""
    if status == "running":
        yield "running: another process works on this run now"
    elif status == "interrupted" and questions:
        yield f"{words.waiting(questions)}:"
        for question in questions:
            yield f"  read {question.prompt}"
            yield f"  answer in {question.reply.name} beside it"
        yield f"then: {command('kforge', 'resume', run.path)}"
    elif status == "interrupted":
        yield f"interrupted; to go on: {command('kforge', 'resume', run.path)}"


def _root(given: Path | None, chosen: Settings) -> Path:
    """Return the folder of runs. Raises InputError if the user names one that does not exist."""
    if given is not None and not given.is_dir():
        raise InputError(f"-o {given}: there is no such folder")
    return given or chosen.runs


# --- runs -------------------------------------------------------------------------------------------------


class RunRow(NamedTuple):
    """A run or suite in the list: its name and what it works on for the first line, its state and result for the
    second."""

    id: str
    created: str
    about: str
    state: str


def runs(*, root: Path | None, json: bool) -> int:
    chosen = settings.load()
    where = _root(root, chosen)
    key = chosen.signing_key
    listing = _listing(where, chosen)
    for remark in listing.notes:
        note(remark)
    listed = [_checked(run, where, key) for run in listing.runs]
    if json:
        documents.print_json([as_json(run) | whose(is_ours=is_ours) for run, is_ours in listed])
        return 0
    of_runs = (_run_row(run, where, is_ours=is_ours) for run, is_ours in listed)
    rows = sorted([*_suite_rows(where, key), *of_runs], reverse=True)
    if not rows:
        say(f"no runs in {where}")
        return 0
    names = _names([row.id for row in rows])
    width = max(map(len, names.values()))
    say(f"runs in {where}, newest first")
    for row in rows:
        begun = datetime.fromisoformat(row.created).astimezone()
        say(f"{names[row.id]:{width}}  {row.about}, {begun:%Y-%m-%d %H:%M}")
        say(f"{'':{width}}  {row.state}")
    say(f"to see one: {command('kforge', 'show', names[rows[0].id])}")
    return 0


def _listing(root: Path, chosen: Settings) -> Listing:
    """Return the runs under a root. If the default index cannot be used, use one in memory. Raises InputError if a
    configured index cannot be used, and RunError for a symbolic link that others may have planted."""
    url = index_url(root) if chosen.database == index_url(chosen.runs) else chosen.database
    try:
        return list_runs(root, url, chosen.signing_key)
    except RunError:
        raise  # a planted symbolic link: the user must see this message
    except InputError:
        if url != index_url(root):
            raise
        return list_runs(root, IN_MEMORY, chosen.signing_key)


def _names(ids: Sequence[str]) -> dict[str, str]:
    """Return a short name for each run: its last letters, or the whole id where two runs have the same."""
    letters = Counter(map(short_id, ids))
    return {each: each if letters[short_id(each)] > 1 else short_id(each) for each in ids}


def _checked(listed: RunSummary, root: Path, key: Key) -> tuple[RunSummary, bool]:
    """Return a run of the index as its files describe it, and whether the user made all of it.

    The index may have been edited by others. The files of a finished run are read once, and their signatures are
    checked. Its summary is then kept with a signature of its own.
    """
    path = root / listed.id
    if (kept := derived.read(path, derived.SUMMARY, RunSummary, key)) is not None:
        return kept, True
    with suppress(RunError):
        run = RunFolder.open(path)
        is_ours = run.is_all_signed(key)
        if is_ours:
            run.hold_to(key)
        summary = run.summary()
        if is_ours and summary.status == "finished":
            derived.keep(path, derived.SUMMARY, summary, key)
        return summary, is_ours
    return listed, False


def _waiting(path: Path) -> list[Question]:
    """Return the questions that a run waits for. An error in its exchange becomes a note, so that other runs are still
    listed."""
    try:
        return Exchange(path / "exchange").waiting()
    except RunError as error:
        note(str(error))
        return []


def _run_row(run: RunSummary, root: Path, *, is_ours: bool) -> RunRow:
    questions = _waiting(root / run.id) if run.status == "interrupted" else []
    state = words.waiting(questions) if questions else run.status
    attempts = f"{run.attempts} attempt{'s' * (run.attempts != 1)}"
    about = f"{run.problem} on {run.platform} with {run.model}"
    said = "" if is_ours else f" ({NOT_OURS})"
    return RunRow(run.id, run.created, about, f"{state}, {attempts}: {words.summary(run)}{said}")


def _suite_rows(root: Path, key: Key) -> Iterator[RunRow]:
    """Yield one row for each suite. The runs inside a suite are not listed: they would hide the others."""
    for path in suite_paths(root):
        try:
            suite = SuiteFolder.open(path)
            said = "" if suite.hold_to(key) else f" ({NOT_OURS})"
            header = suite.header
            done = sum(suite.is_done(task) for task in header.tasks)
            workload = f" ({header.workload})" if header.workload else ""
            platform, model = (header.options.get(name, "?") for name in ("platform", "model"))
            about = f"suite {header.suite}{workload} on {platform} with {model}"
            status = suite.status() if done < len(header.tasks) else "finished"
            unfinished = [task for task in header.tasks if status == "interrupted" and not suite.is_done(task)]
            questions = [each for task in unfinished for each in questions_of(suite, task) if each.is_waiting]
            waits = words.waiting(questions) if questions else status
            state = f"{waits}, {done} of {len(header.tasks)} problems done{said}"
        except RunError as error:
            note(str(error))
        except OSError as error:
            note(f"{path} is left out: {error.strerror}")
        else:
            yield RunRow(path.name, header.created, about, state)


# --- platforms --------------------------------------------------------------------------------------------


def platforms(platform_dirs: list[Path], *, json: bool) -> int:
    rows = [documents.platform(found) for found in registry.available((*settings.load().platform_dirs, *platform_dirs))]
    if json:
        documents.print_json(rows)
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        about = f"{row['language']} for torch device {row['device']}, " if "language" in row else ""
        here = "available" if row["available"] else f"not available: {row['reason']}"
        say(f"{row['name']:{width}}  {about}{here}")
        say(f"{'':{width}}  {row['folder']}")
    return 0

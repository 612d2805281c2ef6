"""`exchange`: lists, shows and answers the questions of runs and suites that wait for replies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kforge import durable, settings
from kforge.cli import WAITING
from kforge.cli.forging import read_text
from kforge.cli.output import documents
from kforge.cli.output.lines import note, say, say_page
from kforge.errors import InputError, RunError
from kforge.models import Exchange
from kforge.models.exchange import WRITTEN_REPLIES
from kforge.store import SuiteFolder, find_folder, run_paths, suite_paths
from kforge.suite.results import questions_of
from kforge.visible import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.models import Question

NAMES_SHOWN = 3
"""Most questions that an error names."""


class Asked(NamedTuple):
    """A question of a run, or of a problem's run inside a suite."""

    path: str
    """The question's name; in a suite, after its problem's name: `003-analysis`, `norms/unit_rows/003-analysis`."""
    run: Path
    """The folder of the run, or of the suite."""
    question: Question

    def document(self) -> dict[str, Any]:
        """Return what `--json` says about the question."""
        question = self.question
        about = {"run": str(self.run), "question": self.path, "agent": question.request.agent, "state": question.state}
        if question.is_waiting:
            about |= {"prompt": str(question.prompt), "reply": str(question.reply)}
        return about


def list_questions(name: str | None, *, root: Path | None, all_states: bool, json: bool) -> int:
    """Print the questions that wait for replies: of one run or suite, or of all in the folder of runs.

    Returns exit status 0, also if no question waits. Raises RunError for an unknown run.
    """
    where = root or settings.load().runs
    found = list(_asked(where, name)) if name is not None else list(_everywhere(where))
    shown = [each for each in found if all_states or each.question.is_waiting]
    if json:
        documents.print_json([each.document() for each in shown])
        return 0
    for run in dict.fromkeys(each.run for each in shown):
        say(str(run))
        for each in shown:
            if each.run == run:
                say(f"  {each.path}: {each.question.state}")
                if each.question.is_waiting:
                    say(f"    read {each.question.prompt}")
        say(f"  then: {command('kforge', 'resume', run)}")
    if not shown:
        say("no question waits for a reply" if not all_states else "no question was asked")
    return 0


def show(name: str, path: str, *, root: Path | None, into: Path | None, json: bool) -> int:
    """Print one prompt, or write all prompts that wait into a folder with their images. Raises InputError if `path`
    names no question, or if no `path` is given and the number of waiting questions is not one."""
    where = root or settings.load().runs
    waiting = [each for each in _asked(where, name) if each.question.is_waiting]
    if into is not None:
        if path:
            raise InputError("--into writes all questions that wait; leave the QUESTION out")
        return _write_all(waiting, into, json=json)
    chosen = _one(waiting, name) if not path else _named(list(_asked(where, name)), path, name)
    text = _prompt(chosen)
    if json:
        documents.print_json({**chosen.document(), "text": text})
    else:
        say_page(text.rstrip("\n"))
    return 0


def answer(name: str, path: str, file: Path | None, *, root: Path | None, folder: Path | None, json: bool) -> int:
    """Store one answer, or all answers of a folder. Returns status 75 while other questions wait.

    Raises InputError for an empty answer, for an unknown question, and for a question that is already answered.
    """
    where = root or settings.load().runs
    found = list(_asked(where, name))
    waiting = [each for each in found if each.question.is_waiting]
    if folder is not None:
        if path or file is not None:
            raise InputError("--from takes all answers of a folder; leave QUESTION and FILE out")
        taken = _take_all(waiting, folder)
    elif file is None:
        raise InputError("give the FILE with the answer, - for standard input, or --from with a folder of answers")
    else:
        chosen = _one(waiting, name) if not path else _named(found, path, name)
        if not chosen.question.is_waiting:
            raise InputError(f"{chosen.path} waits for no reply: it is {chosen.question.state}")
        _put(chosen, read_text(Path("/dev/stdin") if str(file) == "-" else file), str(file))
        taken = [chosen]
    left = [each for each in waiting if each not in taken]
    if json:
        documents.print_json({"answered": [each.path for each in taken], "waiting": [each.path for each in left]})
    else:
        for each in taken:
            say(f"answered: {each.path}")
        for each in left:
            say(f"still waiting: {each.path}")
    note(f"to go on: {command('kforge', 'resume', (taken or waiting)[0].run)}")
    return WAITING if left else 0


# --- finding ----------------------------------------------------------------------------------------------


def _asked(root: Path, name: str) -> Iterator[Asked]:
    """Yield the questions of a run or suite. Raises RunError if no run or suite has this name."""
    folder = find_folder(root, name)
    if isinstance(folder, SuiteFolder):
        yield from _of_suite(folder)
    else:
        yield from (Asked(each.name, folder.path, each) for each in Exchange(folder.exchange).questions())


def _of_suite(suite: SuiteFolder) -> Iterator[Asked]:
    for task in suite.header.tasks:
        for each in questions_of(suite, task):
            yield Asked(f"{task.name}/{each.name}", suite.path, each)


def _everywhere(root: Path) -> Iterator[Asked]:
    """Yield the questions of all runs and suites under a root. A run that cannot be read becomes a note."""
    for path in (*run_paths(root), *suite_paths(root)):
        try:
            yield from list(_asked(root, str(path)))
        except RunError as error:
            note(str(error))


def _one(waiting: Sequence[Asked], name: str) -> Asked:
    """Return the only question that waits. Raises InputError where none or several wait."""
    if len(waiting) == 1:
        return waiting[0]
    if not waiting:
        raise InputError(f"no question of {name} waits for a reply")
    raise InputError(f"{len(waiting)} questions of {name} wait: name one of {_names(waiting)}")


def _named(found: Sequence[Asked], path: str, name: str) -> Asked:
    """Return the question of this name. Raises InputError if no question has this name."""
    for each in found:
        if each.path == path:
            return each
    there = f"there are {_names(found)}" if found else "it has asked none yet"
    raise InputError(f"{name} has no question {path!r}; {there}")


def _names(found: Sequence[Asked]) -> str:
    more = f" and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
    return ", ".join(each.path for each in found[:NAMES_SHOWN]) + more


# --- files ------------------------------------------------------------------------------------------------


def _prompt(asked: Asked) -> str:
    """Return the text of a prompt. Raises InputError for a question that was put to a model and not to a person."""
    if not asked.question.prompt.exists():
        raise InputError(f"{asked.path} was asked of a model, so it has no prompt to read")
    return _content(asked.question.prompt).decode(errors="replace")


def _content(path: Path) -> bytes:
    """Return the content of a file in a run's folder, which others may have written. Raises RunError if it cannot be
    read or is a symbolic link."""
    try:
        return durable.read(path)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error


def _write_all(waiting: Sequence[Asked], into: Path, *, json: bool) -> int:
    """Write the prompts that wait, and their images, into the folder `into` under the names of their questions. Raises
    InputError if none waits."""
    if not waiting:
        raise InputError("no question waits for a reply, so there is nothing to write")
    for each in waiting:
        place = (into / each.path).parent
        durable.make_folder(place)
        for file in (each.question.prompt, *each.question.images):
            durable.write(place / file.name, _content(file))
    if json:
        documents.print_json({"folder": str(into), "questions": [each.path for each in waiting]})
    else:
        for each in waiting:
            say(f"{into / each.path}.prompt.md")
        say(f"write each answer beside its prompt, as NAME{WRITTEN_REPLIES[0]}")
    return 0


def _take_all(waiting: Sequence[Asked], folder: Path) -> list[Asked]:
    """Take the answers to waiting questions from a folder, and return the questions that were answered.

    A note names each file that is empty or fits no question. Raises InputError if the folder holds no answer.
    """
    if not folder.is_dir():
        raise InputError(f"--from {folder}: there is no such folder")
    wanted = {f"{each.path}{ending}": each for each in waiting for ending in WRITTEN_REPLIES}
    taken = []
    for file in sorted(path for ending in WRITTEN_REPLIES for path in folder.rglob(f"*{ending}")):
        name = file.relative_to(folder).as_posix()
        if name not in wanted:
            note(f"{file} fits no question that waits, and was left out")
        elif not (text := read_text(file)).strip():
            note(f"{file} is empty, and was left out")
        elif wanted[name] not in taken:
            _put(wanted[name], text, str(file))
            taken.append(wanted[name])
    if not taken:
        raise InputError(
            f"{folder} holds no answer to a question that waits; name it as the prompt, ending in .reply.md"
        )
    return taken


def _put(asked: Asked, text: str, origin: str) -> None:
    """Write an answer into the exchange. Raises InputError for an empty one."""
    if not text.strip():
        raise InputError(f"the answer in {origin} is empty")
    question = asked.question
    Exchange(question.folder).write(question.reply.name, text)

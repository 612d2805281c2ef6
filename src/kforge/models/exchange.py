"""The exchange: one folder that every model call goes through.

    001-generation.request.json     the question, written before the call
    001-generation.prompt.md        the question as text, if a person or a coding agent answers
    001-generation.reply.json       the answer, written after the call, whole or not at all
    001-generation.reply.md|.txt    the answer as plain text, when a person or a coding agent writes it
    001-generation.image-1.png      an image that goes with the question; the next one is image-2

Questions are numbered in the order in which they are asked, and named for the agent that asks. The number is for
readers: a question is found again by its identity, which follows from the request, because another run may ask in
another order. Folders of earlier versions have the identity in the place of number and agent, and are used unchanged.

A folder belongs to one run. An answered request is never asked again, so a run that was killed goes on without
paying twice; and the folder replays without a model (`replay:DIR`).
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from kforge import durable
from kforge.errors import ModelError, RunError
from kforge.models.budget import CallBudget
from kforge.models.conversation import LanguageModel, Reply, Request
from kforge.models.model_settings import ModelSettings
from kforge.models.prices import Price

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kforge.records import Usage

REQUEST = ".request.json"
PROMPT = ".prompt.md"
WRITTEN_REPLIES = (".reply.md", ".reply.txt")
"""Endings of the files that a person or a coding agent may answer in; the first is the one that prompts name."""
REPLIES = (".reply.json", *WRITTEN_REPLIES)
_NAMING = threading.Lock()
"""Held while a question gets its number, because several threads may ask at once. One lock serves all folders, because
it is held briefly."""
_NUMBERED = re.compile(r"(\d{3,9})-(?:generation|analysis)")


@dataclass(frozen=True)
class Question:
    """One question of an exchange, as its files show it."""

    name: str
    """The beginning of its files' names: `003-analysis`."""
    request: Request
    state: Literal["answered", "waiting", "empty reply", "asked"]
    """`waiting`: an answer is expected as a file. `empty reply`: that file is there, and has no text. `asked`: a model
    was asked, and the run was interrupted before it answered."""
    folder: Path

    @property
    def is_waiting(self) -> bool:
        return self.state in ("waiting", "empty reply")

    @property
    def prompt(self) -> Path:
        return self.folder / f"{self.name}{PROMPT}"

    @property
    def reply(self) -> Path:
        """Return the file that the answer goes to."""
        return self.folder / f"{self.name}{WRITTEN_REPLIES[0]}"

    @property
    def images(self) -> list[Path]:
        """Return the files of the images that go with the question."""
        return [self.folder / name for name, _ in self.request.image_files(self.name)]


class Exchange:
    """The requests and replies of one run, on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write_request(self, request: Request) -> str:
        """Write the question and its images to disk, before the model is asked, and return the question's name.

        Raises RunError when they cannot be written.
        """
        with _NAMING:
            name = find_name(self.folder, request) or self._next_name(request)
            for file, image in request.image_files(name):
                self.write(file, image.content)
            self.write(f"{name}{REQUEST}", request.to_json(indent=2) + "\n")
        return name

    def was_asked(self, request: Request) -> bool:
        name = find_name(self.folder, request)
        return name is not None and (self.folder / f"{name}{REQUEST}").exists()

    def write_reply(self, request: Request, reply: Reply) -> None:
        """Write the answer to disk, whole or not at all. Raises RunError when it cannot be written."""
        name = find_name(self.folder, request) or self.write_request(request)
        self.write(f"{name}{REPLIES[0]}", reply.to_json(indent=2) + "\n")

    def reply(self, request: Request) -> Reply | None:
        """Return the recorded answer, or None; a damaged file is moved aside and counts as absent.

        Raises ModelError when another model gave the answer, and RunError when a file cannot be read.
        """
        name = find_name(self.folder, request)
        return None if name is None else self._reply(name, request)

    def calls(self) -> Iterator[tuple[str, Request, Reply]]:
        """Yield every question that has an answer, with its name, in the order in which they were asked.

        A damaged reply counts as absent. Nothing is written, because the folder may belong to another user.
        """
        for name, request in _requests(self.folder):
            try:
                reply = _read_reply(self.folder, name, request)
            except DamagedReply:
                continue
            if reply is not None:
                yield name, request, reply

    def answered(self) -> Iterator[tuple[Request, Reply]]:
        """Yield the questions and answers of `calls`."""
        for _, request, reply in self.calls():
            yield request, reply

    def notes(self) -> list[str]:
        """Return what a user must know about the calls, each remark once."""
        return list(dict.fromkeys(note for _, reply in self.answered() for note in reply.notes))

    def questions(self) -> list[Question]:
        """Return all questions in the order in which they were asked. Raises RunError for an unreadable file."""
        requests = _requests(self.folder)
        return [Question(name, request, self._state(name, request), self.folder) for name, request in requests]

    def waiting(self) -> list[Question]:
        """Return the questions whose answers are expected as files and are not there yet."""
        return [question for question in self.questions() if question.is_waiting]

    def question(self, request: Request) -> Question | None:
        """Return the question that this request was asked as; None where it was not asked."""
        identity = request.identity
        return next((each for each in self.questions() if each.request.identity == identity), None)

    def write(self, name: str, text: str | bytes) -> None:
        """Write a file atomically and durably. Raises RunError when it cannot be written."""
        durable.make_folder(self.folder, within=self.folder)
        durable.write(self.folder / name, text, shared=True, within=self.folder)

    def _next_name(self, request: Request) -> str:
        # every numbered file counts, also a reply without a question: it must not answer this question
        used = (_NUMBERED.match(path.name) for path in self.folder.glob("[0-9]*"))
        last = max((int(found[1]) for found in used if found), default=0)
        return f"{last + 1:03d}-{request.agent}"

    def _reply(self, name: str, request: Request) -> Reply | None:
        try:
            reply = _read_reply(self.folder, name, request)
        except DamagedReply as damage:
            self._move_aside(damage.path)
            return self._reply(name, request)
        if reply is not None:
            asked = _read_request(self.folder / f"{name}{REQUEST}")
            if asked is not None and asked.model != request.model:
                raise ModelError(
                    f"{self.folder} holds the answer of {asked.model!r} to a question now for {request.model!r}; "
                    f"go on with {asked.model!r}, or start a new run"
                )
        return reply

    def _move_aside(self, path: Path) -> None:
        try:
            path.replace(path.with_name(path.name + ".damaged"))
        except OSError as error:
            raise RunError(f"cannot move the damaged {path} aside: {error.strerror}") from error

    def _state(self, name: str, request: Request) -> Literal["answered", "waiting", "empty reply", "asked"]:
        try:
            if _read_reply(self.folder, name, request) is not None:
                return "answered"
        except DamagedReply:
            pass
        if not (self.folder / f"{name}{PROMPT}").exists():
            return "asked"
        is_there = any((self.folder / f"{name}{ending}").exists() for ending in WRITTEN_REPLIES)
        return "empty reply" if is_there else "waiting"


class ExchangedModel:
    """A model behind its exchange: a recorded request is answered from the folder."""

    def __init__(
        self,
        source: LanguageModel,
        exchange: Exchange,
        settings: ModelSettings | None = None,
        unused: tuple[str, ...] = (),
        budget: CallBudget | None = None,
    ) -> None:
        """`unused`: names of the settings that `source` does not know. Every reply says so. `budget`: what all calls
        of the run may cost."""
        self.source = source
        self.exchange = exchange
        self.settings = settings or ModelSettings()
        self.unused = unused
        self.budget = budget or CallBudget()

    @property
    def name(self) -> str:
        return self.source.name

    def complete(self, request: Request) -> Reply:
        """Return the recorded reply with its usage, or a new one that is recorded first.

        A recorded reply keeps its original cost, so a resumed run reports the same cost as an uninterrupted one.
        The `Ledger` counts each reply of a run once.

        Raises PromptTooLong for a prompt that does not fit into the context limit, BudgetSpent for a call that could
        pass a budget, and what the source raises.
        """
        recorded = self.exchange.reply(request)
        if recorded is not None:
            if not self.exchange.was_asked(request):
                self.exchange.write_request(request)  # the reply was put there in advance: the folder is the recording
            return recorded
        request = self.settings.applied_to(request)
        with self.budget.reserved(request, self.price, self.exchange):
            self.exchange.write_request(request)
            reply = self._asked(request)
            self.exchange.write_reply(request, reply)
        return reply

    def _asked(self, request: Request) -> Reply:
        began = time.monotonic()
        reply = self.source.complete(request)
        told: dict[str, object] = {"seconds": round(time.monotonic() - began, 3)}
        if self.remark:
            told["notes"] = (*reply.notes, self.remark)
        if self.price.is_own:
            told |= self._own_price(reply.usage)
        return reply.model_copy(update=told)

    def _own_price(self, usage: Usage) -> dict[str, object]:
        """Return the cost fields of a reply, by the user's own prices. Without token counts the cost
        is unknown (None)."""
        cost = self.price.cost(usage.input_tokens, usage.output_tokens) if usage.input_tokens else None
        return {"usage": usage.model_copy(update={"cost_usd": cost}), "prices": self.price.source}

    @property
    def price(self) -> Price:
        return Price(self.name, self.settings)

    @property
    def remark(self) -> str:
        """Return a sentence that names the settings which the model does not take; empty if it takes all of them."""
        return f"{self.name} does not take {' and '.join(self.unused)}, and is asked without" if self.unused else ""


class DamagedReply(Exception):
    """A file that cannot be parsed as a reply: incomplete, or with other content."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


def read_reply(folder: Path, request: Request) -> Reply | None:
    """Return the answer to a request in any of its three forms; None while it is not answered.

    Raises DamagedReply, or RunError for an unreadable file.
    """
    name = find_name(folder, request)
    return None if name is None else _read_reply(folder, name, request)


def find_name(folder: Path, request: Request) -> str | None:
    """Return the name under which a folder holds a request, or its reply; None where it holds neither."""
    identity = request.identity
    if any((folder / f"{identity}{ending}").exists() for ending in (REQUEST, *REPLIES)):
        return identity  # a recording of an earlier version, or a reply that was prepared
    return next((name for name, asked in _requests(folder) if asked.identity == identity), None)


def _requests(folder: Path) -> Iterator[tuple[str, Request]]:
    """Yield the requests of a folder with their names, numbered ones in their order, each question once."""
    numbered, others, seen = list[tuple[int, str]](), list[str](), set[str]()
    for path in folder.glob(f"*{REQUEST}"):
        name = path.name.removesuffix(REQUEST)
        number = _NUMBERED.fullmatch(name)
        if number is not None:
            numbered.append((int(number[1]), name))
        else:
            others.append(name)
    for name in (*sorted(others), *(name for _, name in sorted(numbered))):
        request = _read_request(folder / f"{name}{REQUEST}")
        if request is None or request.identity in seen or (name in others and name != request.identity):
            continue  # a copy under another name: each question counts once
        seen.add(request.identity)
        yield name, request


def _read_reply(folder: Path, name: str, request: Request) -> Reply | None:
    for ending in REPLIES:
        path = folder / f"{name}{ending}"
        try:
            # no links: in a folder that others made, the file behind a link would be shown to a model or a person
            text = durable.read(path).decode("utf-8-sig")
        except FileNotFoundError:
            continue
        except UnicodeDecodeError as error:
            raise DamagedReply(path) from error
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        # Defaults for the fields that a person's answer leaves out: one request, complete.
        said = {"usage": {"requests": 1}, "model": request.model, "finish": "stop"}
        if ending in WRITTEN_REPLIES:
            if not text.strip():
                continue
            return Reply.model_validate({**said, "text": text})
        try:
            return Reply.model_validate({**said, **json.loads(text)})
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedReply(path) from error
    return None


def _read_request(path: Path) -> Request | None:
    try:
        return Request.from_json(durable.read(path))
    except (FileNotFoundError, ValidationError):
        return None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error

"""The exchange: one content-addressed folder that every model call goes through.

    <identity>.request.json     written before the call
    <identity>.reply.json       written after it, whole or not at all
    <identity>.reply.md|.txt    the same answer as plain text, when a person or a coding agent writes it
    <identity>.image-1.png      an image that goes with the request, to be looked at; the next one is image-2

A folder belongs to one run. An answered request is never asked again, so a run that was killed goes on without
paying twice; and the folder replays without a model (`replay:DIR`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import ValidationError

from kforge import durable
from kforge.errors import ModelError, RunError
from kforge.models.conversation import LanguageModel, Reply, Request
from kforge.records import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Exchange:
    """The requests and replies of one run, on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write_request(self, request: Request) -> None:
        """Write the question and its images to disk, before the model is asked. Raises RunError when they cannot be
        written."""
        for name, image in request.image_files:
            self.write(name, image.content)
        self.write(f"{request.identity}.request.json", request.to_json(indent=2) + "\n")

    def was_asked(self, request: Request) -> bool:
        return (self.folder / f"{request.identity}.request.json").exists()

    def write_reply(self, request: Request, reply: Reply) -> None:
        """Write the answer to disk, whole or not at all. Raises RunError when it cannot be written."""
        self.write(f"{request.identity}.reply.json", reply.to_json(indent=2) + "\n")

    def reply(self, request: Request) -> Reply | None:
        """Return the recorded answer, or None; a damaged file is moved aside and counts as absent.

        Raises ModelError when another model gave the answer, and RunError when a file cannot be read.
        """
        try:
            reply = read_reply(self.folder, request)
        except DamagedReply as damage:
            self._move_aside(damage.path)
            return self.reply(request)
        if reply is not None:
            asked = self._asked_of(request.identity)
            if asked is not None and asked != request.model:
                raise ModelError(
                    f"{self.folder} holds the answer of {asked!r} to a question now for {request.model!r}; "
                    f"go on with {asked!r}, or start a new run"
                )
        return reply

    def answered(self) -> Iterator[tuple[Request, Reply]]:
        """Yield every question that has an answer, in the order of their identities."""
        for path in sorted(self.folder.glob("*.request.json")):
            request = _read_request(path)
            if request is not None and path.name != f"{request.identity}.request.json":
                continue  # a copy under another name: each question counts once
            reply = self.reply(request) if request is not None else None
            if request is not None and reply is not None:
                yield request, reply

    def waiting(self) -> list[Path]:
        """Return the prompts whose replies are expected as files and are not there yet."""
        prompts = sorted(self.folder.glob("*.prompt.md"))
        return [prompt for prompt in prompts if not self._is_answered(prompt.name.removesuffix(".prompt.md"))]

    def write(self, name: str, text: str | bytes) -> None:
        """Write a file atomically and durably. Raises RunError when it cannot be written."""
        durable.make_folder(self.folder, within=self.folder)
        durable.write(self.folder / name, text, shared=True, within=self.folder)

    def _move_aside(self, path: Path) -> None:
        try:
            path.replace(path.with_name(path.name + ".damaged"))
        except OSError as error:
            raise RunError(f"cannot move the damaged {path} aside: {error.strerror}") from error

    def _is_answered(self, identity: str) -> bool:
        request = _read_request(self.folder / f"{identity}.request.json")
        try:
            return request is not None and read_reply(self.folder, request) is not None
        except DamagedReply:
            return False

    def _asked_of(self, identity: str) -> str | None:
        request = _read_request(self.folder / f"{identity}.request.json")
        return request.model if request is not None else None


class ExchangedModel:
    """A model behind its exchange: a recorded request is answered from the folder."""

    def __init__(self, source: LanguageModel, exchange: Exchange) -> None:
        self.source = source
        self.exchange = exchange

    @property
    def name(self) -> str:
        return self.source.name

    def complete(self, request: Request) -> Reply:
        """Return the recorded reply with its usage, or a new one that is recorded first.

        A recorded reply keeps its original cost, so a resumed run reports the same cost as an uninterrupted one.
        `spent` counts each reply of a run once.
        """
        recorded = self.exchange.reply(request)
        if recorded is None or not self.exchange.was_asked(request):
            # also for a reply that was put there in advance: the folder is the recording
            self.exchange.write_request(request)
        if recorded is not None:
            return recorded
        reply = self.source.complete(request)
        self.exchange.write_reply(request, reply)
        return reply


def spent(folder: Path) -> Usage:
    """Return the cost of all answers in an exchange folder, each counted once."""
    return sum((reply.usage for _, reply in Exchange(folder).answered()), Usage())


class DamagedReply(Exception):
    """A file that cannot be parsed as a reply: incomplete, or with other content."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


def read_reply(folder: Path, request: Request) -> Reply | None:
    """The answer to a request in any of its three forms. Raises DamagedReply, or RunError for an unreadable file."""
    for suffix in ("json", "md", "txt"):
        path = folder / f"{request.identity}.reply.{suffix}"
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
        if suffix != "json":
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

"""What is said to a model and what comes back."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator

from kforge.records import Record, Usage


class Message(Record):
    """One turn; `fingerprint` is `text` with every measured value taken out (see `kforge.prompts`)."""

    role: Literal["system", "user", "assistant"]
    text: str
    fingerprint: str


class Request(Record):
    """One question to a model."""

    agent: Literal["generation", "analysis"]
    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float | None = None
    """Absent: the model's own default, because many models refuse any other."""

    @property
    def identity(self) -> str:
        """The name of the question: who asks, and what, without what was measured.

        The model is not part of it, so a recording replays whichever model made it, and the names of the files
        that a person answers do not change with the model. That the cache never answers for another model is the
        exchange's task: a recorded request names its model, and `Exchange` checks it.
        """
        question = [self.agent, *([message.role, message.fingerprint] for message in self.messages)]
        return hashlib.sha256(json.dumps(question).encode()).hexdigest()[:20]


def _whole(text: str) -> str:
    """The text with a question mark for each half of a surrogate pair, which JSON can hold and no file can."""
    return text.encode("utf-8", "replace").decode()


class Reply(Record):
    """One answer with what it cost."""

    text: Annotated[str, AfterValidator(_whole)]
    usage: Usage
    model: str
    """Who really answered, as the provider names it."""
    finish: str
    """`stop`, or why the answer ended early: `length`, `content_filter`, …"""


class Model(Protocol):
    """Anything that answers a request."""

    @property
    def name(self) -> str: ...

    def complete(self, request: Request) -> Reply:
        """Answer, or raise WaitingForReplies, RecordingExhausted, ProviderError or ModelError."""
        ...

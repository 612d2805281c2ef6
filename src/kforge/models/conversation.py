"""Requests to a model, and its replies."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator

from kforge.models.images import Image
from kforge.records import Amount, Count, Record, Usage

IMAGES_REFUSED = "images_refused"
"""Value of `Reply.finish` if the model refused the images of a request. The reply has no answer; `text` says why."""


class Message(Record):
    """One message; `fingerprint` is `text` with every measured value removed (see `kforge.prompts`)."""

    role: Literal["system", "user", "assistant"]
    text: str
    fingerprint: str
    images: tuple[Image, ...] = ()


class Request(Record):
    """One question to a model."""

    agent: Literal["generation", "analysis"]
    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float | None = None
    """Absent: the model's own default, because many models refuse any other."""
    effort: str | None = None
    """How long a reasoning model thinks. Absent: the model's own default."""
    seed: Count | None = None
    """Seed of the model's random choices. Absent: none."""
    step: Count = 0
    """Index of the attempt that the question is asked for."""

    @property
    def identity(self) -> str:
        """Return the name of the question: a digest of the role, the step and the messages, without measured values and
        images.

        The same words asked for another attempt are another question: a reply is never used for two attempts of a run.

        The model is not part of it. So a recording can be replayed under any model's name, and the files that a person
        answers keep their names when the model changes. `Exchange` checks the model that a recorded request names, so
        that the cache never answers for another model.
        """
        question = [
            self.agent,
            *([self.step] if self.step else []),
            *(
                [message.role, message.fingerprint, *(each.sha256 for each in message.images if not each.measured)]
                for message in self.messages
            ),
        ]
        return hashlib.sha256(json.dumps(question).encode()).hexdigest()[:20]

    @property
    def images(self) -> tuple[Image, ...]:
        """Return the images of all messages."""
        return tuple(image for message in self.messages for image in message.images)

    def image_files(self, name: str) -> tuple[tuple[str, Image], ...]:
        """Return the images of all messages, each with the name of its file. `name`: the question's in its exchange."""
        return tuple((f"{name}.image-{n}.{image.suffix}", image) for n, image in enumerate(self.images, 1))


def _whole(text: str) -> str:
    """Return the text with a question mark for each lone surrogate, which JSON can hold and no file can."""
    return text.encode("utf-8", "replace").decode()


class Reply(Record):
    """One answer with its cost."""

    text: Annotated[str, AfterValidator(_whole)]
    usage: Usage
    model: str
    """The model that really answered, as the provider names it."""
    finish: str
    """`stop`, or why the answer ended early: `length`, `content_filter`, `images_refused`, …"""
    seconds: Amount = 0.0
    """Seconds from the question to the answer, with every retry. Zero if the answer was put there as a file."""
    tries: Count = 1
    """How often the provider was asked until it answered."""
    prices: str = ""
    """The price table by which the call was priced, with its date; empty where the price is not known."""
    notes: tuple[str, ...] = ()
    """What a user must know about the call, in words: settings that were not used, another model than the one asked."""


class LanguageModel(Protocol):
    """A model: anything that answers a request."""

    @property
    def name(self) -> str: ...

    def complete(self, request: Request) -> Reply:
        """Answer, or raise WaitingForReplies, RecordingExhausted, ProviderError or ModelError."""
        ...

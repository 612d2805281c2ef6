"""Finds the question that an agent would ask, without asking a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.models import Request


class _Prompted(Exception):
    """Carries a request from `Unasked` through the agent to `question`."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.identity)
        self.request = request


class Unasked:
    """A model that answers nothing: it raises the agent's request as an exception, which `question` catches."""

    name = "client"

    def complete(self, request: Request) -> NoReturn:
        raise _Prompted(request)


def question(ask: Callable[[], object]) -> Request:
    """Return what an agent on an `Unasked` model would have sent in this call."""
    try:
        ask()
    except _Prompted as prompted:
        return prompted.request
    raise AssertionError("the agent asked no model")


def as_text(request: Request) -> str:
    """Return the messages of a question as one text."""
    return "\n\n".join(message.text.strip() for message in request.messages)

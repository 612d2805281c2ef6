"""Keeps a prompt under a number of tokens, by leaving out what matters least, and says what was left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.models.tokens import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kforge.prompts import Rendered

MOST_TOKENS = 24_000
"""Most tokens of a prompt by default: models lose facts in contexts over about 32 thousand tokens, and the answer needs
room as well."""
KEPT_LINES = 8
"""Number of latest attempts whose lines stay when the history is shortened."""

Facts = dict[str, object]


def _without(name: str, empty: object) -> Callable[[Facts], Facts]:
    return lambda facts: {**facts, name: empty}


def _latest(facts: Facts) -> Facts:
    history = facts["history"]
    assert isinstance(history, list)
    return {**facts, "history": history[-KEPT_LINES:]}


STEPS: tuple[tuple[str, str, Callable[[Facts], Facts]], ...] = (
    ("what losing rewrites changed", "differences", _without("differences", ())),
    ("programs of earlier runs", "remembered", _without("remembered", ())),
    ("the older attempts", "history", _latest),
    ("most of the log", "log_lines", _without("log_lines", 12)),
    ("the operators of eager mode", "operators", _without("operators", ())),
    ("parts of the profile", "profile_lines", _without("profile_lines", 45)),
    ("the last correct program", "last_correct", _without("last_correct", None)),
)
"""Parts of a prompt that are left out, in this order. Each has its name in the prompt, the fact that holds it, and a
function that shortens the facts. All parts are marked as measured, so that a recording made on another machine, where
texts have other lengths, still replays."""


def fitted(
    render: Callable[[Facts], Sequence[Rendered]], facts: Mapping[str, object], most_tokens: int
) -> Sequence[Rendered]:
    """Return the messages of a prompt, shortened step by step until they have at most this many tokens.

    A prompt that is still too long after the last step stays as it is: the problem and the program are never cut.
    """
    given: Facts = {**facts, "left_out": []}
    messages = render(given)
    left_out: list[str] = []
    for name, fact, change in STEPS:
        if tokens(messages) <= most_tokens:
            break
        if given.get(fact):
            shorter = change(given)
            if shorter[fact] != given[fact]:
                left_out.append(name)
                given = {**shorter, "left_out": left_out}
                messages = render(given)
    return messages


def tokens(messages: Sequence[Rendered]) -> int:
    """Return the estimated number of tokens of the messages."""
    return sum(len(message.text.encode()) for message in messages) // BYTES_PER_TOKEN

"""Repeats an unreadable answer to the model that gave it, before the model is asked again."""

from __future__ import annotations

from kforge.models import Message, Reply
from kforge.prompts import trim

MOST_LINES, MOST_CHARS = 120, 6000
"""How much of an unreadable answer is shown to the model again: enough to recognise it. One that was cut off may have
tens of thousands of tokens."""
EMPTY = "(an empty answer)"
"""Stands for an answer without any text, because providers refuse empty messages."""


def said(reply: Reply) -> Message:
    """Return the model's own answer, shortened, as a message of the continued conversation."""
    text = trim(reply.text, MOST_LINES, MOST_CHARS) if reply.text.strip() else EMPTY
    return Message(role="assistant", text=text, fingerprint=text)

"""Estimates the number of tokens in a prompt, before a model has counted them.

No tokenizer is asked: each model has its own, and most of them are not public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.models.conversation import Request

BYTES_PER_TOKEN = 3
"""Bytes per token, a low estimate: current tokenizers need 3.2 to 4.2 bytes per token for code and English."""
TOKENS_PER_MESSAGE = 16
"""Tokens by which chat templates mark the beginning and the end of a message, at most."""
TOKENS_PER_IMAGE = 6000
"""The most tokens that a large provider counts for one image of the sizes that kforge accepts."""


def likely_tokens(request: Request) -> int:
    """Return the estimated number of tokens of the prompt, for a comparison with a context limit."""
    return -(-_bytes(request) // BYTES_PER_TOKEN) + _marks(request)


def most_tokens(request: Request) -> int:
    """Return a number of tokens that the prompt cannot exceed: a tokenizer makes at most one token of a byte."""
    return _bytes(request) + _marks(request)


def _bytes(request: Request) -> int:
    return sum(len(message.text.encode("utf-8", "replace")) for message in request.messages)


def _marks(request: Request) -> int:
    return TOKENS_PER_MESSAGE * len(request.messages) + TOKENS_PER_IMAGE * len(request.images)

"""Names of models: `PROVIDER:MODEL[@URL]` as users write them, and names as providers return them."""

from __future__ import annotations

import re

_AT_URL = re.compile(r"(?P<model>.+?)@(?P<url>https?://.+)")
"""A model's name with the URL of its server, after the provider."""
_NEXT = re.compile(r",(?=\s*(?:(?:builtin|exchange)\s*(?:,|$)|[a-z][a-z0-9-]*:))")
"""The comma before the next model of an ensemble."""
_SNAPSHOT = re.compile(r"[-@:](?:\d{4}-\d{2}-\d{2}|\d{8}|\d{3,4}|latest)")
"""What providers append to a model's name for one of its versions: `-2025-08-07`, `@20250929`, `-0613`, `:latest`."""


def ensemble(names: str) -> tuple[str, ...]:
    """Return the models that a text names: one, or several that are separated by commas.

    A comma that is not followed by a model's name belongs to a name, such as that of a recording's folder.
    """
    return tuple(name.strip() for name in _NEXT.split(names))


def provider_and_model(name: str) -> tuple[str, str, str]:
    """Return the provider, the model and the URL of the server in a name; the URL is empty if the name has
    no URL."""
    provider, _, model = name.partition(":")
    at_url = _AT_URL.fullmatch(model)
    return (provider, at_url["model"], at_url["url"]) if at_url else (provider, model, "")


def is_same_model(asked: str, answered: str) -> bool:
    """Return whether a reply's model is the one that was asked, or a dated snapshot of it.

    `asked`: as the user names it, with its provider. `answered`: as the reply names it.
    """
    _, model, _ = provider_and_model(asked)
    wanted = re.sub(r"[-:]latest$", "", _plain(model))
    got = _plain(answered)
    return got in ("", wanted) or (got.startswith(wanted) and _SNAPSHOT.fullmatch(got[len(wanted) :]) is not None)


def _plain(name: str) -> str:
    """Return a name without its vendor's folder, in small letters: `models/Gemini` is `gemini`."""
    return name.lower().rpartition("/")[2]

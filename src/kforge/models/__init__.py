"""Access to models: one `LanguageModel` protocol, and one exchange folder that every call goes through.

builtin               no model: the smith, which `session` calls instead
replay:DIR            answers from a recorded exchange, read only
exchange              writes the request and stops; a person, a coding agent or another machine answers
scripted:FILE|DIR     answers in order from a file or folder
PROVIDER:MODEL[@URL]  a provider, or a server at URL that speaks the provider's protocol (extra `models`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.errors import ModelError
from kforge.models.budget import CallBudget
from kforge.models.conversation import IMAGES_REFUSED, LanguageModel, Message, Reply, Request
from kforge.models.exchange import Exchange, ExchangedModel, Question
from kforge.models.images import Image, NamedImages, read_images
from kforge.models.ledger import Ledger, ModelCall
from kforge.models.model_settings import ModelSettings, NamedSettings
from kforge.models.names import ensemble

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = [
    "IMAGES_REFUSED",
    "CallBudget",
    "Exchange",
    "ExchangedModel",
    "Image",
    "LanguageModel",
    "Ledger",
    "Message",
    "ModelCall",
    "ModelSettings",
    "NamedImages",
    "NamedSettings",
    "Question",
    "Reply",
    "Request",
    "ensemble",
    "is_remote",
    "open_model",
    "read_images",
]

_NAMES = "builtin, replay:DIR, exchange, scripted:FILE or PROVIDER:MODEL (such as openai:gpt-5)"


OFFLINE = ("builtin", "replay", "exchange", "scripted")
"""Kinds of models that make no network call. Their questions are asked one by one, so that a script's order fits."""


def is_remote(name: str) -> bool:
    """Return whether a model is asked over a network, so that several of its answers can be awaited at once."""
    return name.partition(":")[0] not in OFFLINE


def open_model(
    name: str,
    *,
    exchange: Path,
    keys: Mapping[str, str],
    settings: ModelSettings | None = None,
    budget: CallBudget | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ExchangedModel:
    """Return the model of this name. Its calls are recorded in the folder `exchange`, and answered from it when
    recorded.

    `keys` maps variable names (`OPENAI_API_KEY`) to secrets. `settings`: how the model is asked; the result's `remark`
    names those that this model does not take. `budget`: what all calls of the run may cost. `tell` gets progress
    reports while a provider does not answer.

    Raises ModelError, before any call, for an unknown name, a missing recording or script, a missing extra or a missing
    key.
    """
    from kforge.models.offline import AwaitedModel, ReplayedModel, ScriptedModel

    folder = Exchange(exchange)
    settings = settings or ModelSettings()
    kind, colon, rest = name.partition(":")
    source: LanguageModel
    if name == "exchange":
        source = AwaitedModel(folder)
    elif not colon or not kind or not rest:
        raise ModelError(f"unknown model {name!r}; a model is {_NAMES}")
    elif kind == "replay":
        source = ReplayedModel(rest)
    elif kind == "scripted":
        source = ScriptedModel(rest, folder)
    else:
        from kforge.models.providers import ProviderModel

        provider = ProviderModel.open(name, keys, tell=tell)
        provider.budget = budget or CallBudget()
        return ExchangedModel(provider, folder, settings, provider.unused(settings), budget)
    return ExchangedModel(source, folder, settings, settings.sent, budget)

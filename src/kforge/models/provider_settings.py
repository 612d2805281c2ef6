"""Passes the settings of a request on to a provider's client, and says which of them the client does not take.

Clients of pydantic-ai drop a setting that their provider does not have. What they drop is in their class and in the
profile of the model, and is read from there, so that kforge can report it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai.models import Model as PydanticModel
    from pydantic_ai.settings import ModelSettings as WireSettings

    from kforge.models.conversation import Request
    from kforge.models.model_settings import ModelSettings


def wire_settings(request: Request, client: PydanticModel, timeout: float) -> WireSettings:
    """Return the settings of a request as this client takes them. `timeout`: seconds for the answer."""
    # The provider's own retries would hide attempts and waits from kforge.
    settings: dict[str, Any] = {"max_tokens": request.max_tokens, "timeout": timeout, "max_retries": 0}
    given = {name: getattr(request, name) for name in ("effort", "temperature", "seed")}
    for name, value in given.items():
        if value is not None and name not in unused_settings(given, client):
            settings |= _effort(value, client) if name == "effort" else {name: value}
    return cast("WireSettings", settings)


def unused_settings(given: ModelSettings | Mapping[str, Any], client: PydanticModel) -> tuple[str, ...]:
    """Return the names of the given settings that this client does not send to its provider."""
    profile: Mapping[str, Any] = client.profile
    settings = {name: value for name, value in dict(given).items() if value is not None}
    dropped = {*getattr(client, "unsupported_settings", ()), *profile.get("openai_unsupported_model_settings", ())}
    if _takes_no_temperature(profile, reasons=settings.get("effort", "none") != "none"):
        dropped.add("temperature")
    if "effort" in settings and not _effort(settings["effort"], client):
        dropped.add("effort")
    return tuple(name for name in ("effort", "temperature", "seed") if name in settings and name in dropped)


def _effort(effort: str, client: PydanticModel) -> dict[str, object]:
    """Return the setting that asks this client for an effort; empty where it has none."""
    profile: Mapping[str, Any] = client.profile
    if profile.get("supports_thinking", False) or profile.get("thinking_always_enabled", False):
        return {"thinking": False if effort == "none" else effort}
    # A server of another vendor: what its model can do is not known, and the server refuses what it does not take.
    return {"openai_reasoning_effort": effort} if _speaks_openai(client) else {}


def _speaks_openai(client: PydanticModel) -> bool:
    return any(base.__name__ in ("OpenAIChatModel", "OpenAIResponsesModel") for base in type(client).__mro__)


def _takes_no_temperature(profile: Mapping[str, Any], *, reasons: bool) -> bool:
    """Return whether the provider refuses a temperature: while a model reasons, or for some models always."""
    if profile.get("anthropic_disallows_sampling_settings", False):
        return True
    if not profile.get("openai_supports_reasoning", False):
        return False
    efforts = profile.get("openai_reasoning_efforts")
    can_rest = "none" in efforts if efforts is not None else profile.get("openai_supports_reasoning_effort_none", False)
    return reasons or not can_rest or profile.get("thinking_enabled_by_default", False)

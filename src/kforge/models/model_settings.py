"""The settings of a model: reasoning effort, temperature, seed, lengths and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationError

from kforge.errors import PromptTooLong
from kforge.models.tokens import likely_tokens
from kforge.records import Amount, Count, Record
from kforge.records.faults import first_fault

if TYPE_CHECKING:
    from kforge.models.conversation import Request

LEAST_ANSWER = 256
"""Tokens that an answer must have room for within the context limit. No program or recommendation is shorter."""
_SENT = ("effort", "temperature", "seed")
"""The settings that are sent to a provider, which may not know them. kforge itself applies the others."""


def _positive(value: int) -> int:
    if value < 1:
        raise ValueError("it must be at least 1")
    return value


class ModelSettings(Record):
    """How a model is asked. An absent setting is left to the model or to the agent."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    """How long a reasoning model thinks before it answers."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    """Randomness of the answer. Absent: the model's own default, because many models refuse any other."""
    seed: Count | None = None
    """Seed of the model's random choices, if its provider takes one."""
    context: Annotated[Count, AfterValidator(_positive)] | None = None
    """The most tokens that a prompt and its answer may have together."""
    max_tokens: Annotated[Count, AfterValidator(_positive)] | None = None
    """The most tokens that an answer may have, with the thinking before it. Absent: what the agent asks for."""
    price_in: Amount | None = None
    """US dollars for a million tokens of a prompt, for a model that the price table does not have."""
    price_out: Amount | None = None
    """US dollars for a million tokens of an answer."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the settings in a text such as `effort=high,seed=7`. Raises ValueError with a message for users."""
        given: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in cls.model_fields or not equals:
                raise ValueError(
                    f"'{part}' is not a setting; write NAME=VALUE with one of {', '.join(cls.model_fields)}"
                )
            if name in given:
                raise ValueError(f"'{name}' is given twice")
            given[name] = value
        try:
            settings = cls.model_validate(given)
        except ValidationError as error:
            fault = first_fault(error)
            raise ValueError(f"'{fault.field}': {fault.reason}") from None
        if (settings.price_in is None) != (settings.price_out is None):
            raise ValueError("give both price_in and price_out, in US dollars for a million tokens, or neither")
        return settings

    def __str__(self) -> str:
        """Return the settings as the text that `parse` reads."""
        return ",".join(f"{name}={value}" for name, value in self if value is not None)

    @property
    def sent(self) -> tuple[str, ...]:
        """The names of the given settings that are sent to the provider."""
        return tuple(name for name in _SENT if getattr(self, name) is not None)

    def applied_to(self, request: Request) -> Request:
        """Return the request with these settings. Its answer gets no more room than the context limit leaves.

        Raises PromptTooLong if the prompt leaves no room for an answer.
        """
        most = self.max_tokens or request.max_tokens
        if self.context is not None:
            prompt = likely_tokens(request)
            if self.context - prompt < LEAST_ANSWER:
                raise PromptTooLong(
                    f"the {request.agent} prompt of about {prompt} tokens does not fit into the context limit of "
                    f"{self.context} tokens with an answer; nothing was asked"
                )
            most = min(most, self.context - prompt)
        given = {name: getattr(self, name) for name in self.sent}
        return request.model_copy(update={**given, "max_tokens": most})


def _parsed(value: object) -> object:
    return ModelSettings.parse(value) if isinstance(value, str) else value


NamedSettings = Annotated[ModelSettings, BeforeValidator(_parsed), PlainSerializer(str, return_type=str)]
"""Settings as an option of a run, which is written as the text that the user gave."""

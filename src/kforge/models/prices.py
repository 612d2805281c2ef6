"""Computes the price of model calls: by the user's own prices, or by the table of the package genai-prices.

An unknown price is the value None. It is never counted as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from kforge.models.names import provider_and_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.models.model_settings import ModelSettings

FREE = ("replay", "scripted")
"""Kinds of models whose calls cost nothing, because their answers exist before the run."""
OWN_PRICES = "the prices that the user gave"
MILLION = 1_000_000
"""Number of tokens that quoted prices are for."""


@dataclass(frozen=True)
class Price:
    """The price of one model."""

    name: str
    """The model, as the user names it."""
    settings: ModelSettings

    @property
    def is_own(self) -> bool:
        """Return whether the user gave the price."""
        return self.settings.price_in is not None

    @property
    def source(self) -> str:
        """Return the source of the price as text: the user's own price, or the name, version and date of the price
        table."""
        return OWN_PRICES if self.is_own else price_table()

    def cost(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return the price of a call in US dollars, with nothing taken from a provider's cache; None if not known."""
        per_input, per_output = self.settings.price_in, self.settings.price_out
        if per_input is not None and per_output is not None:
            return (input_tokens * per_input + output_tokens * per_output) / MILLION
        provider, model, url = provider_and_model(self.name)
        if provider in FREE:
            return 0.0
        return None if url else _table_cost(provider, model, input_tokens, output_tokens)


def _table_cost(provider: str, model: str, input_tokens: int, output_tokens: int) -> float | None:
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    try:
        return float(calc_price(usage, model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None


@cache
def price_table() -> str:
    """Return the name, version and date of the price table; the date is that of its newest price in force.

    If the package is not installed, the text is "no price table".
    """
    try:
        from genai_prices.data import providers
    except ImportError:
        return "no price table"
    today = datetime.now(tz=UTC).date()
    newest = max((day for each in providers for day in _days(each) if day <= today), default=None)
    return f"genai-prices {metadata.version('genai-prices')}{f', prices up to {newest}' if newest else ''}"


def _days(provider: object) -> Iterator[date]:
    """Yield the days on which prices of a provider began to count."""
    for model in getattr(provider, "models", ()):
        prices = getattr(model, "prices", ())
        for each in prices if isinstance(prices, list | tuple) else ():
            day = getattr(getattr(each, "constraint", None), "start_date", None)
            if isinstance(day, date):
                yield day

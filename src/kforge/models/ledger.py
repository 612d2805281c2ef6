"""The ledger of a run: every answered call of a model, with its tokens, price and time.

It is made from the exchange folder, which holds every question and every answer once. So a resumed run counts no call
twice, and a run that was killed loses none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kforge.models.exchange import Exchange
from kforge.records import Amount, Count, Record, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


class ModelCall(Record):
    """One answered call of a model."""

    question: str
    """The beginning of its files' names in the exchange: `003-analysis`."""
    agent: str
    step: Count
    """Index of the attempt that it was made for."""
    model: str
    """The model that answered, as its provider names it."""
    asked: str
    """The model that was asked, as the user names it."""
    usage: Usage
    seconds: Amount
    """Seconds from the question to the answer, with every retry. Zero if the answer was put there as a file."""
    tries: Count
    """How often the provider was asked until it answered."""


@dataclass(frozen=True)
class Ledger:
    """The calls of a run, in the order in which they were asked."""

    calls: tuple[ModelCall, ...]
    prices: tuple[str, ...]
    """The price tables by which calls were priced, with their dates."""

    @classmethod
    def read(cls, exchange: Path) -> Self:
        """Return the ledger of an exchange folder. Raises RunError for a file that cannot be read."""
        calls, prices = [], dict[str, None]()
        for name, request, reply in Exchange(exchange).calls():
            calls.append(
                ModelCall(
                    question=name,
                    agent=request.agent,
                    step=request.step,
                    model=reply.model,
                    asked=request.model,
                    usage=reply.usage,
                    seconds=reply.seconds,
                    tries=reply.tries,
                )
            )
            if reply.prices:
                prices[reply.prices] = None
        return cls(tuple(calls), tuple(prices))

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that asked, in the order of their first calls."""
        return tuple(dict.fromkeys(call.agent for call in self.calls))

    def of(self, agent: str) -> Ledger:
        """Return a ledger with the calls of one agent only; it has no calls if the agent made none."""
        return Ledger(tuple(call for call in self.calls if call.agent == agent), self.prices)

    def until(self, step: int) -> Ledger:
        """Return a ledger with the calls up to the end of the attempt with the index `step`."""
        return Ledger(tuple(call for call in self.calls if call.step <= step), self.prices)

    @property
    def usage(self) -> Usage:
        return total(call.usage for call in self.calls)

    @property
    def seconds(self) -> float:
        """Seconds spent waiting for models."""
        return round(sum(call.seconds for call in self.calls), 3)

    @property
    def models(self) -> Sequence[str]:
        """The models that answered, each once."""
        return tuple(dict.fromkeys(call.model for call in self.calls))


def total(usages: Iterable[Usage]) -> Usage:
    """Return the sum of the costs of calls."""
    return sum(usages, Usage())

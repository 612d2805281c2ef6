"""Budgets of a run: no call of a model begins that could pass one of them.

What a call can cost at most is known before it: a prompt has at most one token for each of its bytes, and an answer has
at most `max_tokens`. This amount is reserved while the call is in flight. After the call, the ledger has its real cost.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import BudgetSpent
from kforge.models.tokens import most_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.models.conversation import Reply, Request
    from kforge.models.exchange import Exchange
    from kforge.models.prices import Price


@dataclass(frozen=True)
class Charge:
    """Tokens and US dollars of a call."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Charge) -> Charge:
        return Charge(self.tokens + other.tokens, self.usd + other.usd)


class CallBudget:
    """The budget of a run's model calls. All models of the run share it, and may be asked at the same time."""

    def __init__(
        self,
        *,
        usd: float = 0.0,
        tokens: int = 0,
        minutes: float = 0.0,
        ends: float = math.inf,
        waited: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Set the limits. Zero means no limit.

        `ends`: when the minutes are over, by `time.monotonic`. `waited`: returns the seconds by which that moment is
        put off, because the run had to wait for other runs.
        """
        self.usd = usd
        self.tokens = tokens
        self.minutes = minutes
        self._ends = ends
        self._waited = waited
        self._lock = threading.Lock()
        self._reserved: dict[str, Charge] = {}

    @property
    def seconds_left(self) -> float:
        """Seconds that are left for a call, at least zero."""
        return max(0.0, self._ends + self._waited() - time.monotonic())

    def check_time(self) -> None:
        """Raise BudgetSpent if the minutes are over."""
        if not self.seconds_left:
            raise BudgetSpent(minutes_spent(self.minutes))

    @contextmanager
    def reserved(self, request: Request, price: Price, exchange: Exchange) -> Iterator[None]:
        """Reserve what a call can cost at most, until its answer is in the exchange.

        Raises BudgetSpent if the call could pass a limit, or if its price is not known and there is a limit in dollars.
        """
        self.check_time()
        if not self.usd and not self.tokens:
            yield
            return
        with self._lock:
            self._reserve(request, price, exchange)
        try:
            yield
        finally:
            with self._lock:
                del self._reserved[request.identity]

    def _reserve(self, request: Request, price: Price, exchange: Exchange) -> None:
        most = _most(request, price)
        if self.usd and most is None:
            raise BudgetSpent(f"the price of {price.name} is not known, so a budget in dollars cannot be kept")
        most = most or Charge(_most_tokens(request))
        spent = sum((_charge(*call, price) for call in exchange.answered()), Charge())
        taken = sum(self._reserved.values(), spent)
        if self.tokens and taken.tokens + most.tokens > self.tokens:
            left = max(0, self.tokens - taken.tokens)
            raise BudgetSpent(f"the next call could take {most.tokens} tokens, and {left} of {self.tokens} are left")
        if self.usd and taken.usd + most.usd > self.usd:
            left_usd = max(0.0, self.usd - taken.usd)
            raise BudgetSpent(
                f"the next call could cost ${most.usd:.4f}, and ${left_usd:.4f} of ${self.usd:g} are left"
            )
        self._reserved[request.identity] = most


def minutes_spent(minutes: float) -> str:
    """Return the reason of a run that stops because its time is over."""
    return f"{minutes:g} minutes are over"


def _most_tokens(request: Request) -> int:
    return most_tokens(request) + request.max_tokens


def _most(request: Request, price: Price) -> Charge | None:
    """Return what a call can cost at most; None if its price is not known."""
    usd = price.cost(most_tokens(request), request.max_tokens)
    return None if usd is None else Charge(_most_tokens(request), usd)


def _charge(request: Request, reply: Reply, price: Price) -> Charge:
    """Return the cost of an answered call; if its provider did not say, the most that it can have cost."""
    usage = reply.usage
    if not usage.requests:
        return Charge()  # replayed from a recording
    counted = usage.input_tokens + usage.output_tokens
    if usage.cost_usd is not None:
        return Charge(counted, usage.cost_usd)
    most = _most(request, price) or Charge(_most_tokens(request))
    return Charge(counted or most.tokens, most.usd)

"""The cost of solved problems: US dollars, tokens, device seconds and wall-clock seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kforge.records import Record, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.metrics.result import ProblemResult

Currency = Literal["usd", "tokens", "device_seconds", "seconds"]


class Cost(Record):
    """The cost of all problems, solved or not, and per solved problem. A solved problem has a correct program."""

    problems: int
    solved: int
    tokens: int
    usd: float | None
    """US dollars; None if the price of no call is known. Without any call it is 0."""
    unpriced: int
    """Number of calls whose price is not known, and not in `usd`."""
    device_seconds: float
    seconds: float
    """Wall-clock seconds of the runs."""

    @property
    def tokens_per_solved(self) -> float | None:
        """Return all tokens divided by the number of solved problems; None if no problem is solved."""
        return self.tokens / self.solved if self.solved else None

    @property
    def usd_per_solved(self) -> float | None:
        """Return all dollars divided by the number of solved problems. None if no problem is solved, or if the price of
        a call is not known."""
        return self.usd / self.solved if self.solved and self.usd is not None and not self.unpriced else None

    @property
    def device_seconds_per_solved(self) -> float | None:
        return self.device_seconds / self.solved if self.solved else None

    @property
    def seconds_per_solved(self) -> float | None:
        return self.seconds / self.solved if self.solved else None


class CostPoint(Record):
    """A point of a cost curve: the number of problems whose first correct program cost at most `spent`, in the unit of
    the curve (dollars, tokens or seconds)."""

    spent: float
    solved: int
    share: float
    """Share of the finished problems."""


def cost(results: Sequence[ProblemResult]) -> Cost:
    """Return the cost of all these problems, finished or not."""
    usage = sum((result.usage for result in results), Usage())
    return Cost(
        problems=len(results),
        solved=sum(result.is_correct for result in results),
        tokens=usage.input_tokens + usage.output_tokens,
        usd=usage.cost_usd if usage.requests else 0.0,
        unpriced=usage.calls_without_price,
        device_seconds=sum(result.device_seconds for result in results),
        seconds=sum(result.seconds for result in results),
    )


def spent_until_correct(result: ProblemResult, currency: Currency) -> float | None:
    """Return what the attempts up to the first correct one cost.

    None if none is correct, or for `usd` if the price of a call is not known.
    """
    number = next((index for index, step in enumerate(result.steps) if step.is_correct), None)
    if number is None or not result.is_correct:
        return None
    steps = result.steps[: number + 1]
    if currency == "seconds":
        return steps[-1].elapsed
    if currency == "device_seconds":
        return sum(step.device_seconds for step in steps)
    usage = sum((step.usage for step in steps), Usage())
    if currency == "tokens":
        return float(usage.input_tokens + usage.output_tokens)
    return None if usage.calls_without_price else usage.cost_usd or 0.0


def cost_curve(results: Sequence[ProblemResult], currency: Currency) -> tuple[CostPoint, ...]:
    """Return how many problems are solved within a limit per problem: one point for each limit that solves more."""
    done = [result for result in results if result.is_done]
    spent = sorted(each for result in done if (each := spent_until_correct(result, currency)) is not None)
    last = {value: number for number, value in enumerate(spent, 1)}
    return tuple(CostPoint(spent=value, solved=count, share=count / len(done)) for value, count in last.items())

"""The limits of a run: when the loop stops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import BudgetSpent
from kforge.models.budget import minutes_spent
from kforge.records import best_attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.records import Attempt, Comparison, Replication


@dataclass(frozen=True)
class RunLimits:
    """The limits of a run, and how its best program is checked. A target or budget of zero sets no
    limit."""

    iterations: int
    target_speedup: float = 0.0
    budget_seconds: float = 0.0
    counts_cost: bool = False
    """Whether there is a budget of dollars or tokens. A call's cost is known only after it, so calls are then made one
    by one."""
    roofline_share: float = 0.9
    """Share of the roofline from which on the loop stops, because little can be gained."""
    replications: int = 3
    """Number of repeated evaluations of the program that would be reported best."""
    sanitize: bool = True
    """Whether a new best program must first pass the platform's sanitizers."""

    def reached(self, attempts: Sequence[Attempt]) -> str | None:
        """Return why the loop must stop now, or None."""
        best = best_attempt(attempts)
        if best is not None and self._is_target(best.comparisons):
            return self._target_reached
        if best is not None and best.untimed is not None:
            return f"a program is correct, and its speed cannot be measured: {best.untimed}"
        if len(attempts) >= self.iterations:
            return f"{self.iterations} iteration{'s' * (self.iterations > 1)} done"
        if 0 < self.budget_seconds <= (attempts[-1].elapsed if attempts else 0.0):
            return str(BudgetSpent(minutes_spent(self.budget_seconds / 60)))
        return None

    def confirmed(self, stopped: str, best: Attempt | None, replication: Replication | None) -> str:
        """Return the reason why the loop stopped. If the reason was the target speedup and the repeated evaluations of
        the best program do not confirm it, the text says so."""
        if stopped != self._target_reached:
            return stopped
        if best is None or not self._is_target(best.comparisons):
            return f"{stopped} by a program that did not stay correct"
        if replication is None or self._is_target(replication.comparisons):
            return stopped
        return f"{stopped} in one evaluation, not confirmed by {len(replication.evaluations)} further ones"

    @property
    def _target_reached(self) -> str:
        return f"target speedup {self.target_speedup:g} reached"

    def _is_target(self, comparisons: Sequence[Comparison]) -> bool:
        """Return whether the program is proven faster than eager by at least the target."""
        return bool(comparisons) and (
            0 < self.target_speedup <= comparisons[0].speedup.low and comparisons[0].finding == "faster"
        )

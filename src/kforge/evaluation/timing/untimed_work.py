"""Measures how much a candidate computes outside its timed orders, beyond what the baseline does there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.evaluation.processes.machine_load import own_seconds

if TYPE_CHECKING:
    from kforge.evaluation.worker_client.client import WorkerClient


class UntimedWork:
    """Processor time of both sides outside timed orders since the race began.

    Both sides free outputs and take weights there, so only the difference counts. On a host the referee flushes the
    caches: if workers did, a candidate could leave out its own flush, and do hidden work for as long as the baseline's
    takes.
    """

    def __init__(self, baseline: WorkerClient, candidate: WorkerClient) -> None:
        self._baseline = baseline
        self._candidate = candidate
        self._before = _so_far(baseline), _so_far(candidate)
        self._worked_before = baseline.orders.worked
        """Processor seconds of the baseline in timed orders before the race."""

    def seconds(self) -> float:
        """Return the processor seconds that the candidate has used outside timed orders, beyond the baseline's."""
        ours, theirs = (
            sum(max(0.0, now - then) for now, then in zip(_so_far(side), before, strict=True))
            for side, before in zip((self._baseline, self._candidate), self._before, strict=True)
        )
        return max(0.0, theirs - ours)

    def share(self) -> float:
        """Return the candidate's processor seconds outside timed orders, beyond the baseline's, as a share of the
        baseline's timed work."""
        return self.seconds() / max(self._baseline.orders.worked - self._worked_before, 1e-3)


def _so_far(side: WorkerClient) -> tuple[float, float]:
    """Return the processor seconds outside timed orders: of the worker process, and of its descendants."""
    return (own_seconds(side.pid) or 0.0) - side.orders.worked, side.orders.helped_outside

"""The loop itself: one iteration after another until a limit is reached, then the proof of the best program."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import CallRefused, NothingLeft, RecordingExhausted
from kforge.loop.iteration import Iteration
from kforge.loop.proving import Prover
from kforge.loop.round import NearRoofline, Round
from kforge.records import Outcome, Usage, why_no_kernel

if TYPE_CHECKING:
    from collections.abc import Generator

    from kforge.loop.limits import RunLimits
    from kforge.loop.workshop import Workshop
    from kforge.records import Attempt
    from kforge.store import RunFolder


def forge(
    run: RunFolder, workshop: Workshop, limits: RunLimits, began: float | None = None
) -> Generator[Attempt, None, Outcome]:
    """Make attempts until a limit is reached. Yields each attempt when it is on disk, and returns the outcome.

    `began`: when the session began, by `time.monotonic`; now if absent. Raises WaitingForReplies when a request has no
    reply yet, and ProviderError or EvaluationError for a failure that retries did not cure; in each case the run can be
    resumed.
    """
    attempts = list(run.attempts())
    clock = _Clock(time.monotonic() if began is None else began, attempts[-1].elapsed if attempts else 0.0)
    unused = Usage()
    while (stopped := limits.reached(attempts)) is None:
        moves = workshop.search.next_moves(attempts)[: limits.iterations - len(attempts)]
        work = Round(run, workshop, attempts, moves, limits)
        begin = time.monotonic()
        try:
            for draft in work.drafts():
                attempt = Iteration(run, workshop, attempts).judge(draft, sanitize=limits.sanitize)
                seconds = round(time.monotonic() - begin, 3)
                attempt = attempt.model_copy(update={"seconds": seconds, "elapsed": clock.in_all()})
                run.commit(attempt)
                attempts.append(attempt)
                yield attempt
                if limits.reached(attempts) is not None:
                    break
                begin = time.monotonic()
        except (NearRoofline, RecordingExhausted, NothingLeft, CallRefused) as end:
            stopped = str(end)
        unused += work.unused()
        if stopped is not None:
            break
    best, replication, disproved = Prover(run, workshop, limits.replications).prove(attempts)
    outcome = Outcome(
        stopped=limits.confirmed(stopped, best, replication),
        best=best.index if best else None,
        no_kernel=None if best or disproved else why_no_kernel(attempts),
        replication=replication,
        disproved=disproved,
        usage=sum((attempt.usage for attempt in attempts), unused),
        seconds=clock.in_all(),
        session_seconds=clock.this_session(),
    )
    run.finish(outcome)
    return outcome


@dataclass(frozen=True)
class _Clock:
    """Measures the run's wall time over all sessions."""

    began: float
    """When this session began, by `time.monotonic`."""
    earlier: float
    """Seconds of earlier sessions."""

    def this_session(self) -> float:
        return round(time.monotonic() - self.began, 3)

    def in_all(self) -> float:
        return round(self.earlier + self.this_session(), 3)

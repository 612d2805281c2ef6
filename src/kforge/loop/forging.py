"""The loop itself: one iteration after another until a limit is reached, then the proof of the best program."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import CallRefused, NothingLeft, RecordingExhausted
from kforge.loop.iteration import Iteration
from kforge.loop.proving import Prover
from kforge.loop.round import NearRoofline, ProgramExhausted, Round
from kforge.models import Ledger
from kforge.records import Outcome, Usage, why_no_kernel
from kforge.roles import NothingWorthTrying

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kforge.loop.limits import RunLimits
    from kforge.loop.turns import Turns
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
    earlier = attempts[-1].elapsed if attempts else 0.0
    clock = _Clock(time.monotonic() if began is None else began, earlier, workshop.turns)
    ends = _Ends()
    while (stopped := limits.reached(attempts)) is None:
        moves = workshop.search.next_moves(attempts, ends.exhausted(attempts))
        if not moves:
            stopped = ends.reason
            break
        work = Round(run, workshop, attempts, moves[: limits.iterations - len(attempts)], limits)
        begin = clock.this_session()
        try:
            for draft in work.drafts():
                attempt = ends.noted(Iteration(run, workshop, attempts).judge(draft, sanitize=limits.sanitize))
                seconds = round(clock.this_session() - begin, 3)
                attempt = attempt.model_copy(update={"seconds": seconds, "elapsed": clock.in_all()})
                run.commit(attempt)
                attempts.append(attempt)
                yield attempt
                if limits.reached(attempts) is not None:
                    break
                begin = clock.this_session()
        except ProgramExhausted as end:
            ends.add(end)
        except (NearRoofline, RecordingExhausted, NothingLeft, CallRefused) as end:
            stopped = str(end)
        work.finish()
        if stopped is not None:
            break
    best, replication, disproved = Prover(run, workshop, limits.replications).prove(attempts)
    outcome = Outcome(
        stopped=limits.confirmed(stopped, best, replication),
        best=best.index if best else None,
        no_kernel=None if best or disproved else why_no_kernel(attempts),
        replication=replication,
        disproved=disproved,
        usage=Ledger.read(run.exchange).usage,
        seconds=clock.in_all(),
        session_seconds=clock.this_session(),
    )
    run.finish(outcome)
    return outcome


class _Ends:
    """The exhausted programs found since the last attempt: the analysis agent sees nothing left worth trying for them.

    The next attempt records them, and the cost of the agent's answers. Until then a resumed run finds the answers in
    the exchange.
    """

    def __init__(self) -> None:
        self._found: dict[int, NothingLeft] = {}
        self.reason = "nothing is left worth trying"

    def add(self, end: ProgramExhausted) -> None:
        self._found[end.program] = end.end
        self.reason = str(end.end)

    def exhausted(self, attempts: Sequence[Attempt]) -> set[int]:
        """Return the indices of all programs that are exhausted."""
        return {index for attempt in attempts for index in attempt.exhausted} | self._found.keys()

    @property
    def usage(self) -> Usage:
        """Return the cost of the answers that no attempt has recorded yet."""
        return sum((end.usage for end in self._found.values() if isinstance(end, NothingWorthTrying)), Usage())

    def noted(self, attempt: Attempt) -> Attempt:
        """Return the attempt with the exhausted programs that were found before it, and the cost of the answers."""
        if not self._found:
            return attempt
        requests = [
            name for end in self._found.values() if isinstance(end, NothingWorthTrying) for name in end.requests
        ]
        update = {
            "exhausted": tuple(self._found),
            "requests": (*requests, *attempt.requests),
            "usage": self.usage + attempt.usage,
        }
        self._found = {}
        return attempt.model_copy(update=update)


@dataclass(frozen=True)
class _Clock:
    """Measures the run's wall time over all sessions, without the time in which it waited for other runs."""

    began: float
    """When this session began, by `time.monotonic`."""
    earlier: float
    """Seconds of earlier sessions."""
    turns: Turns

    def this_session(self) -> float:
        return round(time.monotonic() - self.began - self.turns.waited, 3)

    def in_all(self) -> float:
        return round(self.earlier + self.this_session(), 3)

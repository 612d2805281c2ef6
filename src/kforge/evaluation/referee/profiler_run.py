"""Runs a correct program under the best profiler that works on this machine, to read hardware counters. (torch)

A program may behave differently while it is profiled, or print a false report. A profile is advice and not a verdict,
so a false one harms only the program's author. A profiler that does not work is skipped, and the reason is reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.errors import EvaluationError, ProfileError
from kforge.evaluation.constants import COUNTED_CALLS, COUNTED_SECONDS, MAX_COUNTED_OUTPUT
from kforge.evaluation.reference.reference import Reference
from kforge.evaluation.static_check import ENTRY
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.platforms import NoProfiler
from kforge.profiling import exports

if TYPE_CHECKING:
    from kforge.evaluation.referee.workers import WorkerFactory
    from kforge.platforms import Profiler
    from kforge.problems.instance import Instance
    from kforge.profiling.exports import Export
    from kforge.records import Candidate


class ProfilerUnusable(Exception):
    """A profiler cannot work on this machine, for any program. The message says why."""


class Ladder:
    """Tries the profilers of a platform, the best first. One that cannot work on this machine is not tried again."""

    def __init__(self, workers: WorkerFactory) -> None:
        self._workers = workers
        self._unusable: dict[str, str] = {}

    def climb(self, instance: Instance, candidate: Candidate, seed: int) -> tuple[Export | None, str]:
        """Return the report of the first profiler that works, or None if none works; and one line that says why the
        better ones did not work."""
        missing: list[str] = []
        for rung in self._workers.adapter.profilers():
            reason = rung.reason if isinstance(rung, NoProfiler) else self._unusable.get(rung.name, "")
            if not reason and not isinstance(rung, NoProfiler):
                try:
                    return self._count(rung, instance, candidate, seed), _told(missing)
                except ProfilerUnusable as error:
                    reason = self._unusable[rung.name] = str(error)
                except (Fault, EvaluationError, ProfileError) as error:
                    reason = str(error)
            missing.append(f"{rung.name} ({reason})")
        return None, _told(missing)

    def _count(self, profiler: Profiler, instance: Instance, candidate: Candidate, seed: int) -> Export:
        """Run the program in a fresh worker under a profiler, and return the report.

        Raises ProfilerUnusable if the profiler cannot work here, ProfileError if its output cannot be read, and Fault
        or EvaluationError if the program fails.
        """
        self._workers.say(f"profiling: with {profiler.name}")
        try:
            client = self._workers.worker(candidate.digest, under=profiler)
        except (Fault, EvaluationError) as error:
            log = getattr(error.verdict, "log", "") if isinstance(error, Fault) else ""
            raise ProfilerUnusable(
                f"no worker starts under it: {profiler.why_not(log) or _last_line(log) or error}"
            ) from None
        try:
            _run(client, instance, candidate, seed)
            output = client.log_after_exit(COUNTED_SECONDS, MAX_COUNTED_OUTPUT)
        finally:
            client.close()
        try:
            return exports.read(output)
        except ProfileError as error:
            if (reason := profiler.why_not(output)) is not None:
                raise ProfilerUnusable(reason) from None
            raise ProfileError(f"nothing can be read from its output: {error}") from None


def _run(client: WorkerClient, instance: Instance, candidate: Candidate, seed: int) -> None:
    """Load the program in the worker, and make the calls that the profiler records."""
    client.load(candidate.source, "candidate.py", ENTRY)
    client.construct(instance, seed)
    if instance.problem.state_digest is not None:
        client.set_state(Reference(instance, seed).state())
    client.count(instance.inputs(seed), COUNTED_CALLS)


def _told(missing: list[str]) -> str:
    """Return the line that names the profilers that did not work."""
    return f"Not profiled with {', nor with '.join(missing)}" if missing else ""


def _last_line(log: str) -> str:
    return next(iter(reversed(log.strip().splitlines())), "")[:200]

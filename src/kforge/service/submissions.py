"""Runs whose programs come from a client: each submission is an attempt of a run folder, as in `kforge forge`."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from kforge import documents
from kforge.agents import AnalysisAgent, GenerationAgent
from kforge.agents.unasked import Unasked
from kforge.errors import InputError
from kforge.loop import HeadToHeads, Prover, Workshop
from kforge.problems.originality import UNCHANGED, is_unchanged
from kforge.records import (
    Attempt,
    Candidate,
    Evaluation,
    Outcome,
    SanitizedClean,
    SanitizerFinding,
    Usage,
    best_attempt,
    why_no_kernel,
)
from kforge.run_options import new_options
from kforge.store import Header, RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.evaluation import Judge
    from kforge.records import Sanitization
    from kforge.service.evaluations import EvaluationService

REPLICATIONS = 3
"""Number of repeated evaluations of the best program when a run ends."""


class Submissions:
    """The runs of a server's clients, one open run for each problem."""

    def __init__(self, service: EvaluationService, root: Path, client: str) -> None:
        """`root`: the folder of runs. `client`: name of the model in the runs."""
        self.service = service
        self.root = root
        self.client = client
        self._runs: dict[str, RunFolder] = {}
        self._one_at_a_time = threading.Lock()

    def submit(self, name: str, source: str) -> tuple[RunFolder, Attempt]:
        """Judge a program as `kforge forge` does, and keep it as the next attempt of the problem's run."""
        began = time.monotonic()
        candidate = self.service.candidate(source)
        evaluation, sanitization = self.service.evaluate_and_sanitize(name, source)
        with self._one_at_a_time:
            run = self._run(name)
            attempt = self._attempt(run, candidate, _sanitized(evaluation, sanitization), time.monotonic() - began)
            with run.writing():
                attempt = self._compared(name, run, attempt)
                run.commit(attempt)
            return run, attempt

    def finish(self, name: str) -> RunFolder:
        """End the problem's run: its best program is evaluated again, and reported only if it stays correct.

        Raises InputError where nothing was submitted.
        """
        with self._one_at_a_time:
            run = self._runs.get(name)
            if run is None:
                raise InputError(f"nothing was submitted for {name} yet")
            began = time.monotonic()
            with run.writing():
                self.service.within_limits(name, lambda judge: self._conclude(run, judge, began))
            del self._runs[name]
            return run

    def history(self, name: str) -> dict[str, Any]:
        """Return the problem's open run as a document; without attempts where nothing was submitted yet."""
        problem = self.service.problem(name)
        with self._one_at_a_time:
            run = self._runs.get(name)
            return {"problem": problem.name, "attempts": []} if run is None else documents.run(run, run.outcome())

    def _run(self, name: str) -> RunFolder:
        """Return the problem's open run; a new one if no run is open."""
        if name not in self._runs:
            service = self.service
            options = new_options(
                **service.options.policy.model_dump(), platform=service.platform.name, model=self.client,
                analyst=self.client, replications=REPLICATIONS,
            )  # fmt: skip
            header = Header.new(
                problem=service.problem(name), workload=service.workload(name), platform=options.platform,
                model=self.client, analyst=self.client, options={**options.model_dump(), "platform_dirs": ""},
            )  # fmt: skip
            self._runs[name] = RunFolder.create(self.root, header, service.settings.signing_key)
        return self._runs[name]

    def _attempt(self, run: RunFolder, candidate: Candidate, evaluation: Evaluation, seconds: float) -> Attempt:
        earlier = run.attempts()
        best = best_attempt(earlier)
        parent = best or (earlier[-1] if earlier else None)
        return Attempt(
            index=len(earlier),
            phase="functional" if best is None else "optimization",
            parent=parent.index if parent is not None else None,
            candidate=candidate,
            unchanged=UNCHANGED if is_unchanged(run.header.problem.source, candidate.source) else None,
            evaluation=evaluation,
            seconds=round(seconds, 3),
            elapsed=round((earlier[-1].elapsed if earlier else 0.0) + seconds, 3),
        )

    def _compared(self, name: str, run: RunFolder, attempt: Attempt) -> Attempt:
        """Return the attempt with the finding of its program against the best one so far, as in the loop."""
        earlier = run.attempts()
        if best_attempt(earlier) is None or not attempt.is_kernel:
            return attempt
        return self.service.within_limits(name, lambda judge: HeadToHeads(run, judge).compared(attempt, earlier))

    def _conclude(self, run: RunFolder, judge: Judge, began: float) -> None:
        attempts = run.attempts()
        platform, model = self.service.platform, Unasked()
        workshop = Workshop(GenerationAgent(model, platform), AnalysisAgent(model, platform), judge)
        best, replication, disproved = Prover(run, workshop, REPLICATIONS).prove(attempts)
        run.finish(
            Outcome(
                stopped="ended by the client",
                best=best.index if best is not None else None,
                no_kernel=None if best or disproved else why_no_kernel(attempts),
                replication=replication,
                disproved=disproved,
                usage=Usage(),
                seconds=round(attempts[-1].elapsed + time.monotonic() - began, 3),
            )
        )


def _sanitized(evaluation: Evaluation, sanitization: Sanitization | None) -> Evaluation:
    """Return the evaluation after the sanitizers: a finding becomes its verdict, as in the loop."""
    match sanitization.outcome if sanitization is not None else None:
        case SanitizerFinding(failure=failure):
            return evaluation.model_copy(update={"verdict": failure})
        case SanitizedClean():
            return evaluation.model_copy(update={"labels": (*evaluation.labels, "sanitized")})
    return evaluation

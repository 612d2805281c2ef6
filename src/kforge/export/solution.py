"""The part of a run that is exported: its best program with the problem, the verdict, and facts about its platform."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kforge import __version__
from kforge.errors import NothingCorrect
from kforge.export import runtime
from kforge.phrases import figures, pace
from kforge.records import Candidate, Correct, Evaluation, Proof

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.platforms import Platform
    from kforge.records import Problem, Workload
    from kforge.store import RunFolder


@dataclass(frozen=True)
class Solution:
    """The best program of a run, and everything that an export tells about it."""

    run: str
    """Id of the run."""
    model: str
    """The model that wrote the program."""
    problem: Problem
    workload: Workload
    candidate: Candidate
    evaluation: Evaluation
    """The evaluation of the best attempt, with the timing of its repetitions where there are some."""
    first: Evaluation
    """The evaluation of the best attempt without its repetitions, as a receipt holds it."""
    replications: int
    """Number of repeated evaluations."""
    platform: Platform
    place: tuple[str, ...]
    """Names of the folders above the run's own, the nearest first; they tell the level of a problem of a suite."""
    weights: Path | None
    """The file with the weights of a live module; None if the constructor makes the weights."""

    @classmethod
    def of(cls, run: RunFolder, platform: Platform) -> Solution:
        """Return the best program of a run. Raises NothingCorrect if it has none, and RunError if it is damaged."""
        best, reported, outcome = run.best(), run.reported(), run.outcome()
        if best is None or best.candidate is None or best.evaluation is None or reported is None:
            why = f": {outcome.no_kernel}" if outcome is not None and outcome.no_kernel else ""
            raise NothingCorrect(f"run {run.id} has no correct program to export{why}")
        weights = run.path / "state.pt" if run.header.problem.state_digest is not None else None
        return cls(
            run=run.id,
            model=run.header.model,
            problem=run.header.problem,
            workload=run.header.workload,
            candidate=best.candidate,
            evaluation=reported,
            first=best.evaluation,
            replications=len(outcome.replication.evaluations) if outcome and outcome.replication else 0,
            platform=platform,
            place=tuple(parent.name for parent in run.path.absolute().parents),
            weights=weights,
        )

    @property
    def verdict(self) -> Correct:
        assert self.evaluation.correct is not None
        return self.evaluation.correct

    @cached_property
    def name(self) -> str:
        """The problem's name as a Python name, such as `softmax_scale`."""
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", self.problem.name)
        name = "_".join(word.lower() for word in words) or "kernel"
        return f"problem_{name}" if name[0].isdigit() else name

    @property
    def package(self) -> str:
        """Name of the exported Python package. Its ending keeps it apart from packages that users have."""
        return f"{self.name}_kernel"

    @cached_property
    def runtime(self) -> dict[str, bytes]:
        """The files of the runtime that the program needs, by relative path; empty if it needs none."""
        return runtime.files(self.candidate.source)

    @property
    def proof(self) -> Proof:
        """The receipt, which `kforge verify` repeats. It does not name the file of the weights, which is elsewhere."""
        problem = self.problem.model_copy(update={"state_path": None})
        return Proof(problem=problem, candidate=self.candidate, evaluation=self.first)

    @property
    def digest(self) -> str:
        """SHA-256 of the program as it was verified."""
        return hashlib.sha256(self.candidate.source.encode()).hexdigest()

    @property
    def packages(self) -> list[str]:
        """The Python packages that the program needs, torch first."""
        return ["torch", *(name for name in self.platform.manifest.requires if name != "torch")]

    @property
    def emulation(self) -> tuple[str, dict[str, str]] | None:
        """Device and environment in which the program is emulated on this machine; None if it is not.

        A program that uses neither the runtime nor such an environment gets its emulator from kforge's worker, so it
        cannot be emulated without kforge.
        """
        adapter = self.platform.adapter
        environment = adapter.environment()
        if adapter.emulated() is None or not (self.runtime or environment):
            return None
        return adapter.device(), environment

    def claims(self) -> list[str]:
        """Return what was measured, a line each: the verdict and the speedups, or why there are none."""
        verdict = self.verdict
        error = f"{verdict.max_error:.2g}, where {verdict.tolerance:.2g} is allowed"
        lines = [f"correct in {verdict.cases} cases; the error that came closest to its tolerance is {error}"]
        if verdict.timing is None:
            return [*lines, f"not timed: {verdict.untimed}"]
        return [*lines, pace(verdict.timing), *figures(verdict.comparisons)]

    @property
    def made_by(self) -> str:
        return f"kforge {__version__}"

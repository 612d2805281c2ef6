"""Stores the best plan of each problem and device, so that the next run of the smith begins with it.

Each plan is one small file, and several runs may write it at the same time. Losing a file costs one or two iterations
of a run, so errors are ignored.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from kforge import durable
from kforge.errors import RunError
from kforge.smith.plan import said_in

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.records import Attempt, EvaluationPolicy, Problem


class PlanMemory:
    """The stored plans of one platform, for one precision and track."""

    def __init__(self, cache: Path, platform: str, policy: EvaluationPolicy) -> None:
        self._folder = cache / "smith"
        self._asked = (platform, policy.precision, policy.track)

    def recall(self, problem: Problem, device: str) -> str:
        """Return the plan that was best for this problem on this device. Empty if none is stored."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(self._file(problem, device).read_text(encoding="utf-8"))["plan"])
        return ""

    def keep(self, problem: Problem, best: Attempt) -> None:
        """Store the plan of a run's best program, if the program was proven faster than the baseline.

        The caller must make sure that the smith wrote the program: the comment that states the plan could be forged.
        """
        evaluation, candidate = best.evaluation, best.candidate
        if candidate is None or evaluation is None or evaluation.correct is None:
            return
        plan = said_in(candidate.source)
        compared = evaluation.correct.comparisons
        if plan is None or not compared or compared[0].finding != "faster":
            return
        file = self._file(problem, evaluation.receipt.device)
        said = {"problem": problem.name, "device": evaluation.receipt.device, "plan": plan}
        with suppress(RunError):  # the run itself succeeded, and its folder is complete without this file
            durable.make_folder(file.parent)
            durable.write(file, json.dumps(said), shared=True)

    def _file(self, problem: Problem, device: str) -> Path:
        key = json.dumps([problem.digest, device, *self._asked])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

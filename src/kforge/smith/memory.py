"""Stores the best plan for each problem and device, so that the smith's next run begins with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.smith.plan import said_in
from kforge.store.memory_files import MemoryFiles

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.records import Attempt, EvaluationPolicy, Problem


class PlanMemory:
    """The stored plans of one platform, for one precision and track."""

    def __init__(self, cache: Path, platform: str, policy: EvaluationPolicy) -> None:
        self._files = MemoryFiles(cache / "smith")
        self._asked = (platform, policy.precision, policy.track)

    def recall(self, problem: Problem, device: str) -> str:
        """Return the plan that was best for this problem on this device. Empty if none is stored."""
        return str(self._files.get(self._key(problem, device)).get("plan", ""))

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
        device = evaluation.receipt.device
        self._files.put(self._key(problem, device), {"problem": problem.name, "device": device, "plan": plan})

    def _key(self, problem: Problem, device: str) -> list[str]:
        return [problem.digest, device, *self._asked]

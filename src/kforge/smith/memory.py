"""What the smith found best, by problem and device, so that the next run begins there.

One small file each, which several runs may write at once. Losing it costs an iteration or two, so nobody fails for it.
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


class Memory:
    """Of one platform; what a program may do by the policy is part of what was asked."""

    def __init__(self, cache: Path, platform: str, policy: EvaluationPolicy) -> None:
        self._folder = cache / "smith"
        self._asked = (platform, policy.precision, policy.track)

    def recall(self, problem: Problem, device: str) -> str:
        """The plan that was best for it there, as its program says it; empty where none is known."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(self._file(problem, device).read_text(encoding="utf-8"))["plan"])
        return ""

    def keep(self, problem: Problem, best: Attempt) -> None:
        """Remember the best program of a run, if it is proven faster.

        The caller knows that the smith made it: that the program says so itself proves nothing.
        """
        evaluation, candidate = best.evaluation, best.candidate
        if candidate is None or evaluation is None or evaluation.correct is None:
            return
        plan = said_in(candidate.source)
        if plan is None or evaluation.correct.timing.comparisons[0].finding != "faster":
            return
        file = self._file(problem, evaluation.receipt.device)
        said = {"problem": problem.name, "device": evaluation.receipt.device, "plan": plan}
        with suppress(RunError):  # the run has ended well, and its folder has everything
            durable.make_folder(file.parent)
            durable.write(file, json.dumps(said), shared=True)

    def _file(self, problem: Problem, device: str) -> Path:
        key = json.dumps([problem.digest, device, *self._asked])
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

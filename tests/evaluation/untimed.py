"""A judge without a clock, for tests of what is right and wrong: the referee is this process, its workers are real."""

from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import torch

from kforge import platforms
from kforge.evaluation import Judge
from kforge.evaluation.processes import launch
from kforge.evaluation.processes.worker_start import Workers
from kforge.evaluation.referee import evaluator
from kforge.evaluation.referee.pipeline import Pipeline
from kforge.evaluation.requests import CandidateRequest
from kforge.evaluation.static_check import scan
from kforge.evaluation.timing.pairs import PairedSamples

if TYPE_CHECKING:
    from kforge.evaluation.correctness.check import CorrectnessCheck
    from kforge.evaluation.worker_client.client import WorkerClient
    from kforge.records import Candidate, Evaluation, Problem


class Untimed(Pipeline):
    """Builds and verifies a candidate. Timing one takes ten times as long, so a correct one gets a made-up timing."""

    def _race(self, client: WorkerClient, eager: WorkerClient | None, check: CorrectnessCheck) -> PairedSamples:
        return PairedSamples(baseline=[1.0] * 6, candidate=[1.0] * 6, foreign=[0.0] * 6, decided=True)

    def _obeys_physics(self, samples: PairedSamples, check: CorrectnessCheck) -> None:
        pass

    def _whose_work(self, client: WorkerClient, samples: PairedSamples, check: CorrectnessCheck) -> tuple[str, ...]:
        return ()


class UntimedJudge:
    """Answers `evaluate` as a judge of the platform `null` does, but for all that is about time.

    What a program does only in timed calls is not seen: such programs need a real judge.
    """

    def __init__(self, cache: Path) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        platform = platforms.find("null")
        self._judge = Judge(platform, cache=cache, environment=environment)
        setup = self._judge._setup
        setup = replace(setup, work=tempfile.mkdtemp(dir=setup.work), compile_baseline=False)
        workers = Workers(
            work=Path(setup.work),
            environment=launch.common_environment(tool_path=setup.tool_path, threads=setup.threads, extra={}),
            platform=platform.folder,
            device_nodes=(),
            ladder=setup.ladder,
            private=[cache],
        )
        before = torch.get_num_threads()
        self._evaluator = evaluator.Evaluator(setup, workers, say=lambda _: None)
        torch.set_num_threads(before)

    def evaluate(self, problem: Problem, candidate: Candidate, *, is_original: bool = False) -> Evaluation:
        if scan(candidate.source) is not None:
            return self._judge.evaluate(problem, candidate)  # which runs nothing
        with warnings.catch_warnings(), patch.object(evaluator, "Pipeline", Untimed):
            warnings.simplefilter("ignore")  # a referee's are in its log
            return self._evaluator.evaluate(
                CandidateRequest(problem=problem, candidate=candidate, is_original=is_original)
            )

    def close(self) -> None:
        self._evaluator.close()
        self._judge.close()

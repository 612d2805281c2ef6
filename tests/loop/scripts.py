"""A problem, answers of a model, and how a run is driven to its end, for tests of the loop."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from kforge import platforms
from kforge.agents import AnalysisAgent, GenerationAgent
from kforge.evaluation import Judge
from kforge.loop import RunLimits, Workshop, forge
from kforge.models import open_model
from kforge.records import Attempt, EvaluationLimits, EvaluationPolicy, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.store import RunFolder

PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
"""
PROGRAM = (
    "```python\nfrom torch import nn\n\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return {}\n```"
)
ORIGINAL = f"```python\n{PROBLEM.partition('def get_inputs')[0]}class ModelNew(Model):\n    pass\n```"
ADVICE = '{"bottleneck": "b", "action": "a", "rationale": "r", "evidence": "e", "expected_gain": "2x"}'


def open_judge(cache: Path) -> Judge:
    environment = {"PATH": os.environ["PATH"]}
    return Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    )


def workshop(run: RunFolder, judge: Judge, model: str, **how: Any) -> Workshop:
    opened = open_model(model, exchange=run.exchange, keys={})
    return Workshop(GenerationAgent(opened, judge.platform), AnalysisAgent(opened, judge.platform), judge, **how)


def scripted(folder: Path, *answers: str) -> str:
    (folder / "script.json").write_text(json.dumps(answers))
    return f"scripted:{folder / 'script.json'}"


def drive(run: RunFolder, work: Workshop, limits: RunLimits) -> tuple[list[Attempt], Outcome]:
    """The attempts that the loop yields, and how it ends."""
    attempts = []
    loop = forge(run, work, limits)
    with run.writing():
        while True:
            try:
                attempts.append(next(loop))
            except StopIteration as end:
                return attempts, end.value
            assert run.attempts()[-1] == attempts[-1], "an attempt was yielded before it was safe on disk"

"""What a device says about itself gets into the receipt, and what held it back into labels and doubts."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.cli.output import words
from kforge.evaluation import Judge
from kforge.evaluation.timing.pairs import PairedSamples
from kforge.platforms import Limit
from kforge.records import Candidate, Evaluation, EvaluationLimits, EvaluationPolicy

if TYPE_CHECKING:
    from pathlib import Path

POWER, HEAT, SUPPLY = Limit("its power limit", own=True), Limit("heat", own=False), Limit("its supply", own=False)

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
"""

ADAPTER = """
import os
from kforge.platforms import Adapter as Base, Limit

class Adapter(Base):
    asked = 0

    def conditions(self):
        self.asked += 1
        return {"clock": f"{self.asked} MHz", "asked in": str(os.getpid())}

    def limits(self):
        return LIMITS
"""


@pytest.mark.parametrize(
    ("busy", "limits", "labels", "doubt"),
    [
        (0.0, set(), [], None),
        (0.0, {POWER}, ["throttled"], None),
        (0.0, {POWER, HEAT, SUPPLY}, ["throttled"], "the device was held back by heat and its supply during timing"),
        (0.5, set(), ["busy_machine"], "other processes used 50% of the machine during timing"),
        (0.5, {HEAT}, ["busy_machine", "throttled"], "other processes used 50% of the machine during timing"),
    ],
)
def test_only_what_a_program_does_not_bring_about_is_a_doubt(
    busy: float, limits: set[Limit], labels: list[str], doubt: str | None
) -> None:
    samples = PairedSamples(busy=busy, limits=limits)
    assert (samples.labels, samples.doubt) == (labels, doubt)


def evaluated(folder: Path, limits: str) -> Evaluation:
    place = folder / "platforms" / "gauged"
    shutil.copytree(platforms.find("null").folder, place)
    manifest = (place / "platform.toml").read_text()
    (place / "platform.toml").write_text(manifest.replace('name = "null"', 'name = "gauged"'))
    (place / "adapter.py").write_text(ADAPTER.replace("LIMITS", limits))
    (folder / "problem.py").write_text(PROBLEM)
    problem = problems.load(folder / "problem.py")
    candidate = Candidate(source=PROBLEM.replace("Model(", "ModelNew("), platform="gauged")
    platform = platforms.find("gauged", (place.parent,))
    environment = {"PATH": os.environ["PATH"]}
    with Judge(
        platform,
        EvaluationPolicy(compile_baseline=False),
        cache=folder / "cache",
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        return judge.evaluate(problem, candidate)


def test_the_receipt_says_in_which_conditions_it_was_timed(tmp_path: Path) -> None:
    evaluation = evaluated(tmp_path, '(Limit("heat", own=False),)')
    assert evaluation.correct is not None
    conditions = evaluation.receipt.conditions
    assert [conditions[moment]["clock"] for moment in ("before timing", "after timing")] == ["1 MHz", "2 MHz"]
    asked = {conditions[moment]["asked in"] for moment in ("before timing", "after timing")}
    assert len(asked) == 1, "by the referee"
    assert conditions["during timing"] == {"held back by": "heat"}
    assert "throttled" in evaluation.labels
    claim = evaluation.correct.timing.comparisons[0]
    assert claim.finding == "cannot tell"
    assert claim.doubt is not None
    assert list(words.conditions(evaluation.receipt)) == [
        f"device before timing: clock 1 MHz, asked in {asked.copy().pop()}",
        "device during timing: held back by heat",
        f"device after timing: clock 2 MHz, asked in {asked.copy().pop()}",
    ]
    assert Evaluation.from_json(evaluation.to_json()) == evaluation


def test_a_device_that_does_not_tell_leaves_no_trace() -> None:
    adapter = platforms.find("null").adapter
    assert adapter.conditions() == {}
    assert adapter.limits() == ()

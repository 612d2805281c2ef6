"""What was best on a device is where the next run begins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, settings
from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    EvaluationPolicy,
    Interval,
    Problem,
    Receipt,
    RuntimeFailure,
    Timing,
    Workload,
)
from kforge.run_options import BUILTIN, RunOptions
from kforge.session import Session
from kforge.smith.brain import Smith
from kforge.smith.languages.cpp.plan import CppPlan
from kforge.smith.memory import PlanMemory
from kforge.store import Header, RunFolder

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, 0)

def get_inputs():
    return [torch.randn(64, 48)]

def get_init_inputs():
    return []
"""
PROBLEM = Problem(name="softmax", source=SOURCE)
PLAN = CppPlan(tile=64)
WORKLOAD = Workload(inputs=(), outputs=(), parameters=(), flops=0, bytes_moved=0)


def attempt(source: str, low: float) -> Attempt:
    interval = Interval(low=low, median=low + 0.1, high=low + 0.2)
    comparison = Comparison(baseline="eager", identity="", seconds=1.0, speedup=interval)
    timing = Timing(seconds=Interval(low=1, median=1, high=1), comparisons=(comparison,), pairs=20)
    receipt = Receipt(
        problem=PROBLEM.digest, candidate="c", platform="cpu", precision="strict", seed="s", device="a device",
        versions={}, sandbox="none", timer="none",
    )  # fmt: skip
    verdict = Correct(max_error=0.0, tolerance=1e-5, cases=20, timing=timing)
    return Attempt(
        index=0, phase="functional", candidate=Candidate(source=source, platform="cpu"),
        evaluation=Evaluation(verdict=verdict, receipt=receipt),
    )  # fmt: skip


@pytest.fixture
def memory(tmp_path: Path) -> PlanMemory:
    return PlanMemory(tmp_path, "cpu", EvaluationPolicy())


def test_what_was_proven_faster_is_recalled_where_it_was(memory: PlanMemory, tmp_path: Path) -> None:
    memory.keep(PROBLEM, attempt(f"{PLAN.line()}\nclass ModelNew: ...", 1.5))
    assert memory.recall(PROBLEM, "a device") == str(PLAN)
    assert memory.recall(PROBLEM, "another device") == ""
    assert memory.recall(Problem(name="softmax", source=SOURCE + "\n"), "a device") == ""
    assert PlanMemory(tmp_path, "cpu", EvaluationPolicy(precision="tf32")).recall(PROBLEM, "a device") == ""


@pytest.mark.parametrize(("line", "low"), [(PLAN.line(), 0.9), ("# a model's program", 1.5)])
def test_nothing_else_is_kept(memory: PlanMemory, line: str, low: float) -> None:
    memory.keep(PROBLEM, attempt(f"{line}\nclass ModelNew: ...", low))
    assert memory.recall(PROBLEM, "a device") == ""


def test_a_damaged_memory_is_none(memory: PlanMemory, tmp_path: Path) -> None:
    memory.keep(PROBLEM, attempt(f"{PLAN.line()}\nclass ModelNew: ...", 1.5))
    (file,) = (tmp_path / "smith").iterdir()
    file.write_text("[1")
    assert memory.recall(PROBLEM, "a device") == ""


def test_a_run_does_not_fail_for_it(tmp_path: Path) -> None:
    (tmp_path / "smith").write_text("where the folder should be")
    memory = PlanMemory(tmp_path, "cpu", EvaluationPolicy())
    memory.keep(PROBLEM, attempt(f"{PLAN.line()}\nclass ModelNew: ...", 1.5))
    assert memory.recall(PROBLEM, "a device") == ""


def test_the_smith_begins_with_it() -> None:
    remembered = Smith(platforms.find("cpu"), str(PLAN)).write(PROBLEM, WORKLOAD).candidate
    assert remembered is not None
    assert CppPlan.of(remembered.source) == PLAN
    of_another_time = Smith(platforms.find("cpu"), "colour=3").write(PROBLEM, WORKLOAD).candidate
    assert of_another_time is not None
    assert CppPlan.of(of_another_time.source) == CppPlan.first(platforms.find("cpu").adapter.features())


def test_a_run_begins_with_what_is_remembered(tmp_path: Path) -> None:
    own = settings.load({"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"})
    options = RunOptions(platform="cpu", model=BUILTIN, analyst=BUILTIN, iterations=1)
    with Session.begin(PROBLEM, options, own, root=tmp_path / "runs") as first:
        assert first.options.plan == ""
        device = first.judge.device()
    kept = attempt(f"{PLAN.line()}\nclass ModelNew: ...", 1.5)
    assert kept.evaluation is not None
    receipt = kept.evaluation.receipt.model_copy(update={"device": device})
    kept = kept.model_copy(update={"evaluation": kept.evaluation.model_copy(update={"receipt": receipt})})
    PlanMemory(own.cache, "cpu", EvaluationPolicy()).keep(PROBLEM, kept)
    with Session.begin(PROBLEM, options, own, root=tmp_path / "runs") as second:
        assert second.options.plan == str(PLAN)
        assert second.run.header.options["plan"] == str(PLAN), "a run that is resumed begins the same way"


@pytest.mark.parametrize("said", ["tile=-64", "tile=100000000", "matrix=9", "algebra=2"])
def test_a_plan_out_of_range_is_none(said: str) -> None:
    """Cause: Plan.read took any whole number, and the kernels were built by it."""
    name, value = said.split("=")
    assert CppPlan.read(str(PLAN)) == PLAN
    assert CppPlan.read(str(replace(PLAN, **{name: int(value)}))) is None


@pytest.mark.parametrize(
    ("model", "seed", "index", "is_kept"),
    [
        ("exchange", "", 0, False),
        ("exchange", "smith", 0, True),
        ("exchange", "smith", 1, False),
        (BUILTIN, "", 3, True),
    ],
)
def test_only_what_the_smith_made_is_remembered(
    tmp_path: Path, model: str, seed: str, index: int, is_kept: bool
) -> None:
    """Cause: whatever said "Made by kforge's smith" in a comment was kept, a program of a stranger as well."""
    env = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": "/usr/bin:/bin",
    }
    own = settings.load(env)
    options = RunOptions(platform="null", model=model, analyst=model, seed=seed)
    header = Header.new(
        problem=PROBLEM, workload=WORKLOAD, platform="null", model=model, analyst=model, options=options.model_dump()
    )
    parent = index - 1 if index else None
    best = attempt(f"{PLAN.line()}\nclass ModelNew: ...", 1.5).model_copy(update={"index": index, "parent": parent})
    with Session.resume(RunFolder.create(tmp_path / "runs", header, own.signing_key), own) as session:
        assert session._is_smiths(best) == is_kept
        (session.run.path / "signature").unlink()
        assert not session._is_smiths(best)


def test_a_plan_of_another_language_is_carried_over_as_far_as_it_fits() -> None:
    carried = CppPlan.carried_over("algebra=0, kernels=1, tile=64, num_warps=8, unroll=99999", frozenset())
    assert carried == replace(CppPlan.first(frozenset()), algebra=0, tile=64)


def test_where_a_carried_plan_fails_the_own_first_plan_is_tried_next() -> None:
    smith = Smith(platforms.find("cpu"), str(replace(PLAN, algebra=0)))
    own = Smith(platforms.find("cpu")).write(PROBLEM, WORKLOAD).candidate
    first = smith.write(PROBLEM, WORKLOAD).candidate
    assert first is not None
    assert own is not None
    assert first.source != own.source
    failure = RuntimeFailure(fault="died", reason="SIGSEGV")
    assert smith.repair(PROBLEM, WORKLOAD, first, failure).candidate == own

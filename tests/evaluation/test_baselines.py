"""The baseline `torch.compile`: its mode is part of what it is, from the judge's argument to the receipt."""

from __future__ import annotations

import json
import os
import shutil
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from kforge import platforms, problems
from kforge.errors import EvaluationError
from kforge.evaluation import Judge, baselines
from kforge.evaluation.baselines import CompileBaseline
from kforge.evaluation.referee.compile_baseline import CompileBaselines
from kforge.evaluation.referee.measurement_cache import Measurements
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy
from kforge.records.policy import CHOICES

if TYPE_CHECKING:
    from pathlib import Path

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""


def named(mode: str) -> str:
    return baselines.identity(mode, torch_version="2.11", threads=2, precision="strict")


def test_modes_are_torchs_own() -> None:
    known = torch._inductor.list_mode_options()
    assert set(CHOICES["compile_mode"]) <= set(known)


@pytest.mark.parametrize("mode", CHOICES["compile_mode"])
def test_an_identity_tells_its_mode(mode: str) -> None:
    assert baselines.compile_mode(named(baselines.compiled_as(mode))) == mode


@pytest.mark.parametrize("identity", ["", "3", "[]", "{}", '{"mode": 3}', named("eager"), named("torch.compile fast")])
def test_what_names_no_mode_is_refused(identity: str) -> None:
    with pytest.raises(ValueError, match=r"no mode of torch\.compile|Expecting value"):
        baselines.compile_mode(identity)


@pytest.mark.parametrize("mode", CHOICES["compile_mode"])
def test_only_what_tries_many_kernels_of_a_device_is_compiled_by_many_processes(mode: str) -> None:
    assert baselines.haste(mode, on_host=True) == baselines.HASTE
    assert bool(baselines.haste(mode, on_host=False)) is ("autotune" not in mode)


@pytest.mark.parametrize(
    ("found", "lasts"),
    [({"log_ratios": (0.1,)}, True), ({"unavailable": "no g++"}, False), ({"doubt": "a busy machine"}, False)],
)
def test_what_is_in_doubt_is_kept_for_an_hour_and_the_rest_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Any, lasts: bool
) -> None:
    """Causes: a failure of `torch.compile`, of a day without a compiler on PATH, was kept for good; on a busy machine
    each process of a run compiled the same baseline again."""

    class Measured(CompileBaselines):
        def _place(self, instance: Any) -> tuple[str, ...]:
            return ("here",)

        def _measure(self, instance: Any) -> CompileBaseline:
            asked.append(instance)
            return CompileBaseline(identity="", **found)

    def process() -> CompileBaselines:
        workers: Any = SimpleNamespace(measurements=Measurements(tmp_path))
        return Measured(workers)

    asked: list[Any] = []
    first, problem = process(), cast("Any", "problem")
    assert first.baseline(problem) == first.baseline(problem)
    assert len(asked) == 1
    process().baseline(problem)
    assert len(asked) == 1, "another process of the same run measures nothing"
    now = [time.time() + baselines.KEPT_SECONDS + 1]
    monkeypatch.setattr(time, "time", lambda: now[0])
    first.baseline(problem)
    assert len(asked) == (1 if lasts else 2), "the process that measured it forgets it after the hour, too"
    first.baseline(problem)
    process().baseline(problem)
    assert len(asked) == (1 if lasts else 2), "measured again once, and then kept for another hour"
    now[0] += baselines.KEPT_SECONDS + 1
    process().baseline(problem)
    assert len(asked) == (1 if lasts else 3), "another process measures again, too"


def test_a_failure_that_an_earlier_kforge_kept_is_measured_again(tmp_path: Path) -> None:
    Measurements(tmp_path).put(CompileBaseline(identity="", unavailable="no g++"), "d")
    workers: Any = SimpleNamespace(measurements=Measurements(tmp_path))
    compiled = CompileBaselines(workers)
    compiled._place = lambda _: ("d",)  # type: ignore[method-assign]
    assert compiled.known(cast("Any", "problem")) is None


@pytest.mark.slow
def test_a_baseline_that_cannot_be_measured_says_why(tmp_path: Path) -> None:
    """Without a compiler on PATH `torch.compile` builds nothing for a host."""
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "tools").mkdir()
    candidate = Candidate(source=PROBLEM.replace("Model(", "ModelNew("), platform="null")
    environment = {"PATH": str(tmp_path / "tools")}
    with Judge(
        platforms.find("null"),
        cache=tmp_path / "cache",
        environment=environment,
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        evaluation = judge.evaluate(problems.load(tmp_path / "problem.py"), candidate)
    assert evaluation.correct is not None
    assert evaluation.correct.timing.against("compile") is None
    assert "no_compile_baseline" in evaluation.labels
    assert evaluation.receipt.unavailable["compile"].startswith("a baseline failed: ")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("then_another", [False, pytest.param(True, marks=pytest.mark.volume)])
def test_a_compiled_baseline_is_measured_once_and_names_its_mode(tmp_path: Path, *, then_another: bool) -> None:
    """Also by a compiler that does not know the processor: in haste nobody asks it, and then it is asked.

    Another problem's is compiled by a copy of a process that has half of the compiler imported.
    """
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "another.py").write_text(PROBLEM.replace("* 2", "* 3"))
    problem, another = (problems.load(tmp_path / f"{name}.py") for name in ("problem", "another"))
    candidate, other = (
        Candidate(source=each.source.replace("Model(", "ModelNew("), platform="null") for each in (problem, another)
    )
    tools = tmp_path / "tools"
    tools.mkdir()
    refusal = """case "$*" in *-mamx*|*-mavx512*) echo unknown option >&2; exit 1;; esac"""
    (tools / "g++").write_text(f'#!/bin/sh\n{refusal}\nexec {shutil.which("g++")} "$@"\n')
    (tools / "g++").chmod(0o755)
    stages: list[str] = []
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_mode="max-autotune"),
        cache=tmp_path / "cache",
        environment={"PATH": f"{tools}:{os.environ['PATH']}"},
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
        on_stage=stages.append,
    ) as judge:
        evaluations = [judge.evaluate(problem, candidate) for _ in range(2)]
        assert stages.count("compiling the torch.compile baseline") == 1, "not twice"
        if then_another:
            (tools / "g++").unlink()
            evaluations.append(judge.evaluate(another, other))
    for evaluation in evaluations:
        assert evaluation.correct is not None
        compared = evaluation.correct.timing.against("compile")
        assert compared is not None, evaluation.receipt.unavailable
        assert json.loads(compared.identity)["mode"] == "torch.compile max-autotune"
    kept = [CompileBaseline.from_json(path.read_text()) for path in (tmp_path / "cache").glob("compilebaseline/*.json")]
    assert {baselines.compile_mode(each.identity) for each in kept} <= {"max-autotune"}


def test_what_was_prepared_in_vain_is_said_and_not_prepared_again() -> None:
    """Where copies of a process that has the compiler cannot compile, and plain workers can."""
    asked: list[bool] = []
    said: list[str] = []

    def reference_worker(*_: object, under: object, **__: object) -> str:
        asked.append(under is not None)
        if under is not None:
            raise EvaluationError("a copy cannot do that")
        return "a worker"

    workers = SimpleNamespace(
        setup=SimpleNamespace(compile_mode="default"), adapter=SimpleNamespace(device=lambda: "cpu"),
        reference_worker=reference_worker, say=said.append,
    )  # fmt: skip
    compiled = CompileBaselines(workers)  # type: ignore[arg-type]
    assert [compiled._worker(None) for _ in range(3)] == ["a worker"] * 3  # type: ignore[arg-type,comparison-overlap]
    assert asked == [False, True, False, False], "the first imports it by itself, the second tries, the third knows"
    assert said == ["compiling the torch.compile baseline: again, in a worker with nothing prepared"]

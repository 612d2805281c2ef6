"""Choosing: a border that does not hold is not used, and where none holds nothing runs unless the user says so."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.evaluation.kernel_layers import skip_if_missing

from kforge import platforms, problems
from kforge.errors import InputError
from kforge.evaluation import Judge
from kforge.evaluation.processes import launch
from kforge.evaluation.sandbox import LADDER, Border, NoSandboxError, choose, ladder, syscalls
from kforge.evaluation.sandbox.ladder import Trial
from kforge.evaluation.sandbox.layers import Landlock, Layer, NamespacesAsNobody
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy

if TYPE_CHECKING:
    from kforge.evaluation.sandbox import WorkerFolders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these layers are Linux's")


@pytest.fixture
def border() -> Border:
    return Border.around(launch.import_path(), os.environ["PATH"], (), ())


def test_no_border_at_all_is_seen_by_the_probes(border: Border, tmp_path: Path) -> None:
    breaches = ladder._tried(Layer, border, tmp_path).breaches
    for breach in (
        "a file outside can be read",
        "a file outside can be written",
        "a file can be made outside",
        "the network can be reached",
        "a socket without a path can be reached",
        "another process can be signalled",
    ):
        assert breach in breaches


class Forgetful(Landlock):
    """A border that somebody forgot to close."""

    def _restrict(self, place: WorkerFolders) -> None:
        pass


def test_a_broken_layer_is_passed_over(border: Border, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "_ways", lambda name: (Forgetful,))
    skip_if_missing("landlock")
    assert not ladder._tried(Landlock, border, tmp_path).reason
    with pytest.raises(NoSandboxError, match="a file outside can be read") as refused:
        choose(("landlock",), border, tmp_path)
    assert "--unsafe" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_layer_that_fails_once_is_tried_again(
    border: Border, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: on a busy machine one failed attempt was enough for a weaker sandbox, and nothing said why."""
    monkeypatch.setattr(syscalls, "prctl", lambda *_: 0)  # the tests' process adopts no orphans
    trials = [Trial([], ["the machine was busy"]), Trial([], [])]
    monkeypatch.setattr(ladder, "_tried", lambda *_: trials.pop(0))
    monkeypatch.setattr(ladder, "_ways", {"landlock": (Landlock,), "unsafe": (Layer,)}.__getitem__)
    skip_if_missing("landlock")
    assert choose(("landlock",), border, tmp_path).passed_over == ""
    trials += [Trial([], ["no room"]), Trial([], ["no memory"])]
    chosen = choose(("landlock", "unsafe"), border, tmp_path)
    assert chosen.describe().endswith("; used because others do not work here (landlock: no memory)")


def test_both_ways_of_a_layer_are_told_apart(border: Border, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "_tried", lambda *_: Trial([], ["no user id is free"]))
    monkeypatch.setattr(ladder, "_ways", {"namespaces": (NamespacesAsNobody,), "unsafe": (Layer,)}.__getitem__)
    assert choose(("namespaces", "unsafe"), border, tmp_path).passed_over == "namespaces as nobody: no user id is free"


def test_a_layer_that_an_attack_got_through_is_not_tried_again(
    border: Border, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [Trial(["the network can be reached"], []), Trial([], [])]
    monkeypatch.setattr(ladder, "_tried", lambda *_: trials.pop(0))
    monkeypatch.setattr(ladder, "_ways", lambda _: (Landlock,))
    with pytest.raises(NoSandboxError, match="the network can be reached"):
        choose(("landlock",), border, tmp_path)


def test_an_attempt_that_dies_is_no_layer_that_works(
    border: Border, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "_attempt", lambda *_: os._exit(1))
    assert ladder._tried(Landlock, border, tmp_path).reason == "the attempt ended without an answer"


def test_a_layer_that_cannot_run_anything_is_passed_over(tmp_path: Path) -> None:
    blind = Border(readable=("/usr",), devices=())
    said = [ladder._tried(way, blind, tmp_path).reason for name in LADDER for way in ladder._ways(name)]
    assert all(said), "kforge itself lies outside this border"


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/loop0").exists(), reason="needs root and a device of root's")
def test_a_layer_in_which_a_platforms_device_cannot_be_opened_is_passed_over(border: Border, tmp_path: Path) -> None:
    ways = ladder._ways("namespaces")
    skip_if_missing("namespaces")
    assert not ladder._tried(ways[0], border, tmp_path / "without").reason
    root_only = Border(border.readable, ("/dev/loop0",))
    assert "/dev/loop0 cannot be opened" in ladder._tried(ways[0], root_only, tmp_path / "with").reason


PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""


def judge(tmp_path: Path, *, unsafe: bool) -> Judge:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    return Judge(
        platforms.find("null"),
        EvaluationPolicy(compile_baseline=False, unsafe=unsafe),
        cache=tmp_path / "cache",
        environment=environment,
        ladder=(),
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    )


def test_nothing_runs_without_a_sandbox_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    path.write_text(PROBLEM)
    problem = problems.load(path)
    candidate = Candidate(source=PROBLEM.replace("class Model", "class ModelNew"), platform="null")
    with judge(tmp_path, unsafe=False) as strict, pytest.raises(InputError, match="no sandbox works here") as refused:
        strict.evaluate(problem, candidate)
    assert "--unsafe" in str(refused.value)
    with judge(tmp_path, unsafe=True) as lax:
        evaluation = lax.evaluate(problem, candidate)
    assert evaluation.correct is not None
    assert "unsafe" in evaluation.labels
    assert evaluation.receipt.sandbox.startswith("unsafe: ")

"""What a platform preloads is done once, in the process that its workers are forked from, and is only about speed."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import Candidate, Correct, EvaluationLimits, EvaluationPolicy, RuntimeFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kforge.records import Problem, Verdict

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")

MANIFEST = """
name = "{name}"
title = "A platform"
language = "PyTorch"
fence = ["python"]
device = "cpu"
facts = ["It is there."]
"""
PRELOAD = """
import os, sys, types
from pathlib import Path

def preload():
    with Path(__file__).with_name("calls").open("a") as calls:
        calls.write(f"{os.getpid()}\\n")
    sys.modules["preloaded"] = types.ModuleType("preloaded")
"""
ADAPTER = """
import sys
from kforge.platforms import Adapter as Base

class Adapter(Base):
    def prepare(self):
        super().prepare()
        self.there = "preloaded" in sys.modules

    def build_environment(self, folder):
        return {"THERE_AT_ONCE": str(self.there)}
"""
PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu()

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
PROGRAM = PROBLEM.replace("class Model", "class ModelNew")
TELLS = f"""{PROGRAM}
import os, sys
raise RuntimeError(f"{{'preloaded' in sys.modules}} {{os.environ.get('THERE_AT_ONCE')}}")
"""


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    (tmp_path / "problem.py").write_text(PROBLEM)
    return problems.load(tmp_path / "problem.py")


@pytest.fixture
def make_platform(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, **files: str) -> Path:
        place = tmp_path / name
        (place / "example").mkdir(parents=True)
        (place / "platform.toml").write_text(MANIFEST.format(name=name))
        (place / "example" / "reference.py").write_text(PROBLEM)
        (place / "example" / "kernel.py").write_text(PROGRAM)
        for stem, text in files.items():
            (place / f"{stem}.py").write_text(text)
        return place

    return make


@pytest.fixture
def judging(tmp_path: Path, problem: Problem) -> Callable[[Path], object]:
    @contextmanager
    def sit(folder: Path) -> Iterator[Callable[[str], Verdict]]:
        platform = platforms.load_folder(folder)
        with Judge(
            platform,
            EvaluationPolicy(compile_baseline=False, unsafe=True),
            cache=tmp_path / "cache",
            environment=dict(os.environ),
            limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
        ) as judge:
            yield lambda source: judge.evaluate(problem, Candidate(source=source, platform=platform.name)).verdict

    return sit


def said(verdict: Verdict) -> str:
    assert isinstance(verdict, RuntimeFailure), verdict
    return verdict.reason


def test_it_is_done_once_and_every_worker_has_it_from_the_beginning(make_platform, judging) -> None:
    folder = make_platform("eager", preload=PRELOAD, adapter=ADAPTER)
    with judging(folder) as judge:
        assert not (folder / "calls").exists()  # the orchestrator does not do it
        assert said(judge(TELLS)) == "RuntimeError: True True"
        assert said(judge(TELLS)) == "RuntimeError: True True"
    (pid,) = (folder / "calls").read_text().split()
    assert int(pid) != os.getpid()


def test_a_platform_that_preloads_nothing_has_nothing(make_platform, judging) -> None:
    make_platform("other", preload=PRELOAD)
    with judging(make_platform("plain", adapter=ADAPTER)) as judge:
        assert said(judge(TELLS)) == "RuntimeError: False False"


@pytest.mark.parametrize(
    "text",
    [
        "def preload(): raise OSError('it is not there')",
        pytest.param("import no_such_module", marks=pytest.mark.volume),
    ],
    ids=["raises", "does not load"],
)
def test_what_cannot_be_preloaded_costs_no_verdict(make_platform, judging, text: str) -> None:
    with judging(make_platform("broken", preload=text)) as judge:
        verdict = judge(PROGRAM)
    assert isinstance(verdict, Correct), verdict

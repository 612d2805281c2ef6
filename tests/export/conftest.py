"""Runs whose best program is a platform's single-shot example, and an interpreter that finds only torch and pytest."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from kforge import platforms
from kforge.export import Solution
from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    Interval,
    Outcome,
    Problem,
    Receipt,
    TensorSpec,
    Timing,
    Usage,
    Workload,
)
from kforge.store import Header, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable


def example(platform: str, file: str) -> str:
    """A platform's single-shot example, with few rows."""
    return (platforms.find(platform).folder / "example" / file).read_text().replace("ROWS = 512", "ROWS = 8")


class MakeRun(Protocol):
    def __call__(
        self, platform: str = ..., *, problem: str = ..., program: str = ..., name: str = ..., place: str = ...
    ) -> RunFolder: ...


@pytest.fixture
def made_run(tmp_path: Path) -> MakeRun:
    """Makes a finished run; by default its problem and its program are the platform's example."""

    def make(
        platform: str = "cpu", *, problem: str = "", program: str = "", name: str = "RMSNorm", place: str = "runs"
    ) -> RunFolder:
        posed = Problem(name=name, source=problem or example(platform, "reference.py"))
        candidate = Candidate(source=program or example(platform, "kernel.py"), platform=platform)
        spec = TensorSpec(shape=(8, 1024), dtype="float32")
        header = Header.new(
            problem=posed,
            workload=Workload(inputs=(spec,), outputs=(spec,), parameters=(), flops=0, bytes_moved=256),
            platform=platform,
            model="scripted:replies",
            analyst="scripted:replies",
            options={},
        )
        run = RunFolder.create(tmp_path / place, header)
        with run.writing():
            run.commit(Attempt(index=0, phase="functional", candidate=candidate, evaluation=_correct(posed, candidate)))
            run.finish(Outcome(stopped="1 iteration done", best=0, usage=Usage(), seconds=1.0))
        return run

    return make


def _correct(problem: Problem, candidate: Candidate) -> Evaluation:
    speedup = Interval(median=2.0, low=1.9, high=2.1)
    comparison = Comparison(baseline="eager", identity="torch", seconds=2e-3, speedup=speedup)
    timing = Timing(seconds=Interval(median=1e-3, low=9e-4, high=2e-3), comparisons=(comparison,), pairs=100)
    return Evaluation(
        verdict=Correct(max_error=1e-7, tolerance=1e-5, cases=20, timing=timing),
        receipt=Receipt(
            problem=problem.digest, candidate=candidate.digest, platform=candidate.platform, precision="strict",
            seed="00", device='a "quoted" device', versions={"torch": "2"}, sandbox="none", timer="monotonic",
        ),
    )  # fmt: skip


@pytest.fixture
def solved(made_run: MakeRun) -> Callable[..., Solution]:
    """The solution of such a run."""

    def solve(platform: str = "cpu", **more: str) -> Solution:
        run = made_run(platform, **more)
        return Solution.of(run, platforms.find(platform))

    return solve


@pytest.fixture(scope="session")
def clean_python(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs an interpreter that finds torch, pytest and the packages named in `also`, and nothing else: no kforge."""

    def run(*arguments: str, cwd: Path, also: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        packages = tmp_path_factory.mktemp("packages")
        for name in _needed({"torch", "pytest", *also}):
            (packages / Path(name).name).symlink_to(name)
        code = (
            "import runpy, sys; sys.path[:0] = sys.argv.pop(1).split(':'); "
            "name = sys.argv.pop(1); sys.argv[0] = name; runpy.run_module(name, run_name='__main__')"
        )
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "XDG_CACHE_HOME") if name in os.environ}
        return subprocess.run(
            [sys.executable, "-I", "-S", "-c", code, f"{cwd}:{packages}", *arguments],
            cwd=cwd, env=kept, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip

    return run


def _needed(names: set[str]) -> set[str]:
    """The files and folders of site-packages that belong to these packages and to what they require."""
    left, seen, found = list(names), set[str](), set[str]()
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in package.requires or ():
            if "extra ==" not in requirement:
                left += re.findall(r"^[\w.-]+", requirement)
        for file in package.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__"):
                found.add(str(package.locate_file(top)))
    return found

"""`load_inline` candidates: built by torch, kept per program, with errors a reader can use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.worker.extensions import build_log, slim_first
from kforge.records import Candidate, CompilationFailure, Evaluation, EvaluationLimits, EvaluationPolicy, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_only_torchs_build_errors_are_taken_for_such() -> None:
    assert build_log(RuntimeError("CUDA out of memory")) is None
    assert build_log(ValueError("Error building extension")) is None


def test_a_build_error_keeps_the_compilers_lines_and_no_path() -> None:
    message = textwrap.dedent("""\
        Error building extension 'fast': [1/2] c++ -MMD -I/somewhere/include -c /home/me/x/main.cpp -o main.o
        FAILED: main.o
        /home/me/x/main.cpp: In function 'int f()':
        /home/me/x/main.cpp:5:12: error: 'sofmax' is not a member of 'torch'
            5 |     return torch::sofmax(x);
              |                   ^~~~~~
        ninja: build stopped: subcommand failed.
    """)
    log = build_log(RuntimeError(message))
    assert log is not None
    assert log.splitlines()[0] == "kernel.cpp:5:12: error: 'sofmax' is not a member of 'torch'"
    assert "torch::sofmax(x)" in log
    assert "/home/me" not in log


def test_a_stale_lock_is_removed_and_a_live_one_waited_for(tmp_path: Path) -> None:
    """The baton of a killed build is removed; but not while the process that holds our lock lives."""
    (tmp_path / "fast").mkdir()
    (tmp_path / "fast" / "lock").touch()
    code = f"""
import sys, time
from pathlib import Path
from kforge.evaluation.worker.extensions import kept_in
with kept_in(Path({str(tmp_path)!r})):
    assert not Path({str(tmp_path / "fast" / "lock")!r}).exists()
    Path({str(tmp_path / "fast" / "lock")!r}).touch()
    print("holding", flush=True)
    sys.stdin.readline()
    Path({str(tmp_path / "fast" / "lock")!r}).unlink()
print("done", flush=True)
"""
    arguments = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, **pipes) as first:  # type: ignore[call-overload]
        assert first.stdout.readline() == "holding\n"
        with subprocess.Popen(arguments, **pipes) as second:  # type: ignore[call-overload]
            first.stdin.write("\n")
            first.stdin.flush()
            assert first.stdout.readline() == "done\n"
            assert second.stdout.readline() == "holding\n"
            second.kill()
    with subprocess.Popen(arguments, **pipes) as third:  # type: ignore[call-overload]
        assert third.stdout.readline() == "holding\n"
        third.communicate("\n")
    assert third.returncode == 0


def slim_in(options: dict[str, Any]) -> bool:
    return any(path.endswith("slim") for path in options["extra_include_paths"])


def test_the_build_that_counts_is_torchs_own_when_the_slim_one_fails(tmp_path: Path) -> None:
    """As torch calls it, with a build that records its orders instead."""
    builds: list[dict[str, Any]] = []

    def build(**options: Any) -> None:
        builds.append(options)
        options["extra_ldflags"].append("-lc10")
        if slim_in(options):
            raise RuntimeError("Error building extension 'fast': what small headers make of it")

    source = tmp_path / "main.cpp"
    source.write_text("#include <torch/extension.h>\n")
    asked: dict[str, Any] = {
        "name": "fast", "sources": [str(source)], "build_directory": str(tmp_path), "extra_cflags": ["-O3"],
        "extra_include_paths": ["/mine"], "extra_ldflags": [], "verbose": True,
    }  # fmt: skip
    attempt = slim_first(build, Path(torch.__file__).parent / "include")
    attempt(**asked)
    assert [slim_in(options) for options in builds] == [True, False]
    assert builds[0]["extra_include_paths"][-1] == "/mine"
    assert not builds[0]["verbose"]
    assert builds[1] == {**asked, "extra_ldflags": ["-lc10"]}

    attempt(**{**asked, "extra_ldflags": []})  # as the next worker of the same program does
    assert [slim_in(options) for options in builds[2:]] == [False]
    source.write_text("#include <torch/extension.h>\nint f();")
    attempt(**{**asked, "extra_ldflags": []})
    assert [slim_in(options) for options in builds[3:]] == [True, False]


def test_a_torch_without_the_files_we_know_builds_as_ever(tmp_path: Path) -> None:
    builds: list[dict[str, Any]] = []
    (tmp_path / "main.cpp").write_text("#include <torch/extension.h>\n")
    options = {"sources": [tmp_path / "main.cpp"], "build_directory": tmp_path, "extra_include_paths": []}
    slim_first(lambda **asked: builds.append(asked), tmp_path / "nowhere")(**options)
    assert builds == [options]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    cache = tmp_path_factory.mktemp("cache")
    with Judge(
        platforms.find("cpu"),
        EvaluationPolicy(compile_baseline=False),
        cache=cache,
        environment={"PATH": os.environ["PATH"]},
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        yield judge


@pytest.fixture(scope="module")
def problem(root: Path) -> Problem:
    return problems.load(root / "examples/softmax_scale/problem.py", ["ROWS=64"])


def evaluated(judge: Judge, problem: Problem, source: str) -> tuple[Evaluation, Path]:
    """How it went, and the folder of this program's own builds."""
    candidate = Candidate(source=source, platform="cpu")
    folder = Path(judge._setup.cache) / "builds" / candidate.digest[:20]
    return judge.evaluate(problem, candidate), folder


@pytest.mark.volume  # a plain extension is built once and judged below
def test_a_load_inline_candidate_is_built_once_and_judged(root: Path, judge: Judge, problem: Problem) -> None:
    built_once(judge, problem, (root / "tests/evaluation/candidates/load_inline_softmax.py").read_text())


def built_once(judge: Judge, problem: Problem, source: str) -> Path:
    """The folder of the builds of a program that is correct, and in a second evaluation finds what it has built."""
    built = []
    for _ in range(2):
        evaluation, folder = evaluated(judge, problem, source)
        assert evaluation.correct is not None, evaluation.verdict
        built += [(path, path.stat().st_mtime_ns) for path in folder.rglob("scaled_softmax.so")]
    assert len(built) == 2
    assert built[0] == built[1]
    return folder


EXTENSION = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
torch::Tensor scaled_softmax(torch::Tensor scores, torch::Tensor bias, double scale) {
    TORCH_CHECK(scores.dim() == 2, "rows of scores wanted");
    auto out = torch::empty_like(scores);
    const auto mixed = (scores * scale + bias).contiguous();
    const auto columns = scores.size(1);
    AT_DISPATCH_FLOATING_TYPES(scores.scalar_type(), "scaled_softmax", [&] {
        const auto* in = mixed.data_ptr<scalar_t>();
        auto* to = out.data_ptr<scalar_t>();
        at::parallel_for(0, scores.size(0), 1, [&](int64_t begin, int64_t end) {
            for (auto row = begin; row < end; ++row) {
                const auto* x = in + row * columns;
                const auto most = *std::max_element(x, x + columns);
                double sum = 0;
                for (int64_t i = 0; i < columns; ++i) sum += std::exp(double(x[i]) - most);
                for (int64_t i = 0; i < columns; ++i) to[row * columns + i] = std::exp(double(x[i]) - most) / sum;
            }
        });
    });
    return out;
}
'''

extension = load_inline("scaled_softmax", SOURCE, functions=["scaled_softmax"])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))
        self.scale = columns**-0.5

    def forward(self, scores):
        return extension.scaled_softmax(scores, self.bias, self.scale)
"""


@pytest.mark.slow
def test_a_plain_extension_is_built_once_with_slim_headers(judge: Judge, problem: Problem) -> None:
    folder = built_once(judge, problem, EXTENSION)
    (ninja,) = folder.rglob("build.ninja")
    assert f"-I{ninja.parent / 'slim'} " in ninja.read_text()
    assert not list(folder.rglob("*.failed"))


MISSPELT = """
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <ATen/ATen.h>
at::Tensor like(at::Tensor scores) {
    return (void(at::show_config()), at::emptylike(scores));
}
'''

load_inline("like", SOURCE, no_implicit_headers=True, is_python_module=False)


class ModelNew(nn.Module):
    pass
"""
"""By the smallest of the headers that are stood in for: torch's own <torch/extension.h> takes three times as long."""


@pytest.mark.slow
@pytest.mark.volume  # that torch's own build counts is seen above, without a compiler
def test_an_error_is_told_as_torchs_own_headers_have_it(judge: Judge, problem: Problem) -> None:
    """Slim headers miss one name more than there is to miss."""
    evaluation, folder = evaluated(judge, problem, MISSPELT)
    verdict = evaluation.verdict
    assert isinstance(verdict, CompilationFailure)
    assert re.search(r"error: .emptylike. is not a member", verdict.log)
    assert not re.search(r"error: .show_config. is not a member", verdict.log)
    (ninja,) = folder.rglob("build.ninja")
    assert f"-I{ninja.parent / 'slim'} " not in ninja.read_text()
    assert list(ninja.parent.glob("slim/*.failed"))

"""A platform with several sanitizers that are programs of their own: real workers, below one that reports late."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.records import (
    Candidate,
    EvaluationLimits,
    Mismatch,
    NotSanitized,
    Problem,
    Sanitization,
    SanitizedClean,
    SanitizerFinding,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADAPTER = '''
import sys
from kforge import platforms
from kforge.platforms import Sanitizer, SanitizerReport
from kforge.platforms.kernels import KernelLaunches, WatchedKernels

# What it saw is told when the program has ended, as racecheck does.
SCRIPT = """
told=$1; shift
"$@" > all 2>&1
cat all
grep -q "BUG of $told" all && echo "FOUND bug in k at kernel.cu:1"
grep -q "planted $told" all && echo "FOUND planted $told"
echo "SUMMARY of $told"
"""


def read(log):
    found = [line for line in log.splitlines() if line.startswith("FOUND bug")]
    return SanitizerReport(found[0], "    in k at candidate.py:3") if found else None


class Adapter(platforms.Adapter):
    def sanitizers(self):
        return tuple(
            Sanitizer(
                name=name,
                read=read,
                wrapper=("/bin/sh", "-c", SCRIPT, "sh", "nobody" if name == "deaf" else name),
                planted=name,
                proven=lambda log, name=name: f"FOUND planted {name}" in log and f"SUMMARY of {name}" in log,
                unsuited=lambda source: "it has no kernel" if "no kernel" in source else None,
                blind_to=(lambda source, kernel: kernel == "theirs") if name == "blind" else None,
                conditions="all is different",
            )
            for name in NAMES
        )

    def watch(self, call):
        call()
        names = ("ours", "theirs") if "torch" in sys.modules["candidate"].KERNELS else ("ours",)
        return WatchedKernels(tuple(KernelLaunches(name, 1, 1e-6) for name in names), 1e-6)

    def plant(self, error):
        print("planted", error, flush=True)
        raise RuntimeError("the device is lost")  # as after an illegal access
'''

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        return x @ y

def get_inputs():
    return [torch.randn(1024, 1024), torch.randn(1024, 4)]

def get_init_inputs():
    return []
"""

PROGRAM = """
import time
import torch
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x, y):
        {line}
        return x @ y
"""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    path = tmp_path_factory.mktemp("problem") / "problem.py"
    path.write_text(PROBLEM)
    return problems.load(path)


def judge_with(folder: Path, names: list[str], **options: object) -> Judge:
    null = platforms.find("null").folder
    place = folder / "stand_in"
    (place / "example").mkdir(parents=True)
    (place / "platform.toml").write_text((null / "platform.toml").read_text().replace('"null"', '"stand_in"'))
    for file in ("reference.py", "kernel.py"):
        (place / "example" / file).write_text((null / "example" / file).read_text())
    (place / "adapter.py").write_text(f"NAMES = {names!r}\n{ADAPTER}")
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    return Judge(platforms.load_folder(place), cache=folder / "cache", environment=environment, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with judge_with(tmp_path_factory.mktemp("platform"), ["one", "two"]) as judge:
        yield judge


def sanitize(judge: Judge, problem: Problem, line: str = "pass") -> Sanitization:
    return judge.sanitize(problem, Candidate(source=PROGRAM.format(line=line), platform="stand_in"))


def test_all_are_run_and_named(judge: Judge, problem: Problem) -> None:
    assert sanitize(judge, problem).outcome == SanitizedClean(sanitizer="one, two", cases=4)


def test_the_first_finding_counts_and_names_who_found_it(judge: Judge, problem: Problem) -> None:
    outcome = sanitize(judge, problem, 'print("BUG of two", flush=True)').outcome
    assert isinstance(outcome, SanitizerFinding)
    assert outcome.sanitizer == "two"
    assert outcome.failure.reason == "FOUND bug in k at kernel.cu:1"
    # a kernel in Python is quoted from the program itself
    assert outcome.failure.log.splitlines()[-1] == "candidate.py:3: import torch"  # type: ignore[union-attr]


def test_a_report_counts_although_the_program_raised_after_it(judge: Judge, problem: Problem) -> None:
    line = 'print("BUG of one", flush=True); raise RuntimeError("the device is lost")'
    outcome = sanitize(judge, problem, line).outcome
    assert isinstance(outcome, SanitizerFinding)
    assert outcome.sanitizer == "one"


def test_a_program_that_only_does_not_run_there_is_not_blamed(judge: Judge, problem: Problem) -> None:
    outcome = sanitize(judge, problem, "raise ValueError('no')").outcome
    reason = "the program does not run under one: ValueError: no; the program does not run under two: ValueError: no"
    assert outcome == NotSanitized(reason=reason)


def test_an_output_that_is_wrong_only_there_is_a_finding(judge: Judge, problem: Problem) -> None:
    outcome = sanitize(judge, problem, "x = x + 1").outcome
    assert isinstance(outcome, SanitizerFinding)
    assert isinstance(outcome.failure, Mismatch)
    assert outcome.failure.reason.startswith("with one, where all is different: ")


def test_nothing_is_started_for_a_program_without_kernels(judge: Judge, problem: Problem) -> None:
    sanitize(judge, problem, "raise ValueError('no')")  # for this one workers are started, and leave their logs
    before = sorted(judge._work.glob("session-*/worker-*.log"))
    assert sanitize(judge, problem, "pass  # no kernel").outcome == NotSanitized(reason="it has no kernel")
    assert sorted(judge._work.glob("session-*/worker-*.log")) == before != []


def test_one_that_does_not_see_its_planted_error_is_not_believed(problem: Problem, tmp_path: Path) -> None:
    with judge_with(tmp_path, ["deaf", "one"]) as judge:
        outcome = sanitize(judge, problem).outcome
    assert isinstance(outcome, SanitizedClean)
    assert outcome.sanitizer == "one"
    assert outcome.not_run == (
        "deaf did not report an error that was planted, so its silence proves nothing (it said: SUMMARY of nobody)",
    )


def test_one_that_does_not_see_what_others_write_is_used_only_where_they_write_nothing(
    problem: Problem, tmp_path: Path
) -> None:
    with judge_with(tmp_path, ["blind"]) as judge:
        programs = [f"KERNELS = {kernels!r}\n{PROGRAM.format(line='pass')}" for kernels in ("ours", "torch too")]
        pure, mixed = (judge.sanitize(problem, Candidate(source=p, platform="stand_in")).outcome for p in programs)
    assert pure == SanitizedClean(sanitizer="blind", cases=4)
    assert mixed == NotSanitized(reason="blind cannot check the program: it also runs theirs")


def test_what_is_too_slow_is_tried_on_fewer_rows(problem: Problem, tmp_path: Path) -> None:
    with judge_with(tmp_path, ["one"], limits=EvaluationLimits(call_deadline=3.0)) as judge:
        slow = sanitize(judge, problem, "time.sleep(60 if len(x) == 1024 else 0)").outcome
        # of two matrices that are multiplied only the first can lose rows
        assert slow == SanitizedClean(sanitizer="one (on fewer rows)", cases=4)
        line = 'print("BUG of one", flush=True) if len(x) == 256 else time.sleep(60)'
        doubtful = sanitize(judge, problem, line).outcome
    assert doubtful == NotSanitized(
        reason="too slow under one: no answer to call within 3 s; on fewer rows, which it need not support: "
        "FOUND bug in k at kernel.cu:1"
    )

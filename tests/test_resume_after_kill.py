"""A run killed with SIGKILL at twenty random points goes on, each time, to the same end.

Nothing that was finished is lost or done again: no evaluation, no model call. And nothing outlives the kill.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from kforge.store import RunFolder

KILLS = 20
SEED = 20251113
PATIENCE = 10.0
"""Seconds in which the processes of a killed run must be gone; the kernel needs milliseconds."""

PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(size))

    def forward(self, x):
        for _ in range(20):
            x = torch.tanh(x + self.shift)
        return x


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return [32]
"""
PROGRAM = """\
```python
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(size))

    def steps(self, x):
        for _ in range(20):
            x = torch.tanh(x + self.shift)
        return x

    def forward(self, x):
        return {}
```
"""
ANSWERS = [
    "Let me think about it.",
    PROGRAM.format("self.steps(x) + 1"),
    PROGRAM.format("[self.steps(x) for _ in range(50)][0]"),
    json.dumps(
        {
            "bottleneck": "repeated work",
            "action": "compute the result once",
            "rationale": "49 of 50 results are dropped",
            "evidence": "aten::tanh runs 1000 times a call",
            "expected_gain": "50x",
        }
    ),
    PROGRAM.format("self.steps(x)"),
]
"""A failure, a repair, a repair that is correct but wasteful, a recommendation, and a rewrite that is faster beyond any
noise of a busy machine: which of the two is the best must not depend on the weather."""
EXPECTED = [
    ("generation_failure", "functional", None),
    ("mismatch", "functional", 0),
    ("correct", "functional", 1),
    ("correct", "optimization", 2),
]


class Result(NamedTuple):
    """Everything about a finished run that must not depend on when it was killed."""

    attempts: list[tuple[str, str, int | None, str]]
    best: str
    stopped: str
    replies: list[str]
    requests: tuple[str, ...]


class Bench:
    """Runs kforge in a place of its own, and sees which processes live there."""

    def __init__(self, place: Path, environment: dict[str, str]) -> None:
        self.place = place
        self.temporary = place / "temporary"
        self.temporary.mkdir(parents=True)
        (place / "tiny.py").write_text(PROBLEM)
        (place / "script.json").write_text(json.dumps(ANSWERS))
        self.environment = environment | {"TMPDIR": str(self.temporary)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        with (self.place / "output.txt").open("w") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "kforge", *arguments],
                cwd=self.place,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                text=True,
            )

    def forge(self) -> subprocess.Popen[str]:
        return self.start(
            "forge",
            "tiny.py",
            "-p",
            "null",
            "-m",
            "scripted:script.json",
            "-n",
            "4",
            "--no-compile-baseline",
            "--replications",
            "0",
        )

    def finish(self, process: subprocess.Popen[str]) -> None:
        status = process.wait(240)
        assert status == 0, (self.place / "output.txt").read_text()

    def wait_for_run(self, process: subprocess.Popen[str]) -> Path:
        """The run's folder, as soon as there is one to be resumed."""
        while not (found := list(self.place.glob("kforge-runs/*/run.json"))):
            assert process.poll() is None, (self.place / "output.txt").read_text()
            time.sleep(0.005)
        return found[0].parent

    def survivors(self) -> list[str]:
        """Referee, nursery and workers all have their working directory in the judge's temporary folder."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cwd").readlink().is_relative_to(self.temporary):
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:  # it ended while we looked, or is another user's
                continue
        return found


def finished(run: Path) -> Result:
    folder = RunFolder.open(run)
    attempts, outcome, best = folder.attempts(), folder.outcome(), folder.best_path
    assert outcome is not None
    assert best is not None
    return Result(
        attempts=[(a.verdict.state, a.phase, a.parent, a.candidate.source if a.candidate else "") for a in attempts],
        best=best.read_text(),
        stopped=outcome.stopped,
        replies=sorted(json.loads(path.read_text())["text"] for path in folder.exchange.glob("*.reply.json")),
        requests=tuple(identity for attempt in attempts for identity in attempt.requests),
    )


def done_so_far(run: Path) -> dict[Path, bytes]:
    """The finished records; a file that a kill left half-written has another name."""
    kept = [*run.glob("attempts/*/*.json"), *run.glob("exchange/*.reply.json"), *run.glob("result.json")]
    return {path: path.read_bytes() for path in kept}


def kill_and_resume(bench: Bench, delay: float) -> tuple[Result, int]:
    """The result of a run killed this long after it began, and how many records it had finished by then."""
    process = bench.forge()
    run = bench.wait_for_run(process)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    end = time.monotonic() + PATIENCE
    while (alive := bench.survivors()) and time.monotonic() < end:
        time.sleep(0.02)
    assert alive == []

    before = done_so_far(run)
    bench.finish(bench.start("resume", run.name))
    assert {path: path.read_bytes() for path in before} == before, "something finished was done again"
    assert bench.survivors() == []
    return finished(run), len(before)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="finds survivors through /proc")
def test_a_killed_run_goes_on_to_the_same_end(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    whole = Bench(tmp_path / "whole", clean_environment)
    process = whole.forge()
    run = whole.wait_for_run(process)
    start = time.monotonic()
    whole.finish(process)
    duration = time.monotonic() - start
    expected = finished(run)
    assert [attempt[:3] for attempt in expected.attempts] == EXPECTED
    assert expected.best == expected.attempts[3][3]
    assert expected.replies == sorted(ANSWERS)

    chance = random.Random(SEED)
    # random points, one in each twentieth of the run, so that every stage is hit
    delays = [duration * (number + chance.random()) / KILLS for number in range(KILLS)]
    points = ", ".join(f"{delay:.2f}" for delay in delays)
    print(f"seed {SEED}: killed after {points} of {duration:.2f} s")  # noqa: T201 - says which kills a failure is about
    benches = [Bench(tmp_path / f"{number:02d}", clean_environment) for number in range(KILLS)]
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        ends = list(pool.map(kill_and_resume, benches, delays))
    for (result, records), delay in zip(ends, delays, strict=True):
        assert result == expected, f"killed after {delay:.2f} s, with {records} records finished"
    assert len({records for _, records in ends}) >= 3, "the kills did not spread over the run"

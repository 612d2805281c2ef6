"""Runs killed with SIGKILL at random points go on to the same end, also when they are killed again and again.

Nothing that was finished is lost or done again: no evaluation, no model call. And nothing outlives a kill.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from kforge.store import RunFolder

SEED = 20251113
HEADER = Path("run.json")
PATIENCE = 10.0
"""Seconds in which the processes of a killed run must be gone; the kernel needs milliseconds."""

PROBLEM = """\
import time
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(size))

    def forward(self, x):
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        return torch.tanh(x + self.shift)


def get_inputs():
    return [torch.randn(16, 32)]


def get_init_inputs():
    return [32]
"""
PROGRAM = """\
```python
import time
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(size))

    def forward(self, x):
        end = time.perf_counter() + {}
        while time.perf_counter() < end:
            pass
        return torch.tanh(x + {})
```
"""
ANSWERS = [
    "Let me think about it.",
    "Let me think about it again.",
    PROGRAM.format("0.002", "1"),
    PROGRAM.format("0.02", "self.shift"),
    json.dumps(
        {
            "bottleneck": "sleep",
            "action": "sleep less",
            "rationale": "nobody waits for it",
            "evidence": "aten::tanh takes microseconds",
            "expected_gain": "10x",
        }
    ),
    PROGRAM.format("0.0005", "self.shift"),
]
"""A failure (asked for twice), a repair, a repair that is correct but slow, a recommendation, and a rewrite that is
faster beyond any noise of a busy machine: which of the two is the best must not depend on the weather. That is why they
wait; and awake, since whose code does the work of one that sleeps is looked for in vain for seconds."""
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
        self.log = place / "output.txt"
        (place / "tiny.py").write_text(PROBLEM)
        (place / "script.json").write_text(json.dumps(ANSWERS))
        self.environment = environment | {"TMPDIR": str(self.temporary)}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        with self.log.open("w") as output:
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
        assert status == 0, self.log.read_text()

    def wait_for_run(self, process: subprocess.Popen[str]) -> Path:
        """The run's folder, as soon as there is one to be resumed."""
        while not (found := list(self.place.glob("kforge-runs/*/run.json"))):
            assert process.poll() is None, self.log.read_text()
            time.sleep(0.005)
        return found[0].parent

    def await_record(self, process: subprocess.Popen[str], record: Path, *, resumed: bool) -> None:
        """Until this is on disk, and a run that was resumed is past its beginning: its referee has told a stage."""
        while process.poll() is None and not (record.exists() and (not resumed or self.is_at_work())):
            time.sleep(0.005)

    def is_at_work(self) -> bool:
        stages = r"\]   (preparing the problem|profiling|running the sanitizers)"
        return re.search(stages, self.log.read_text()) is not None

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
    """The finished records by their place in the run; a file that a kill left half-written has another name."""
    kept = [*run.glob("attempts/*/*.json"), *run.glob("exchange/*.reply.json"), *run.glob("result.json")]
    return {path.relative_to(run): path.read_bytes() for path in kept}


class Point(NamedTuple):
    """A moment of a run, the same on a busy machine and on an idle one: so long after this record was finished."""

    record: Path
    seconds: float


def points_of(run: Path, kills: int, chance: random.Random) -> list[Point]:
    """Random ones between all its records, however long each of them takes, so that every stage is hit."""
    begun = (run / HEADER).stat().st_mtime
    times = sorted(((run / path).stat().st_mtime - begun, path) for path in (HEADER, *done_so_far(run)))
    stretches = [(record, after - before) for (before, record), (after, _) in pairwise(times)]
    chosen = [stretches[number * len(stretches) // kills] for number in range(kills)]
    return [Point(record, seconds * chance.random()) for record, seconds in chosen]


def kill_and_resume(bench: Bench, points: list[Point]) -> tuple[Result, list[int]]:
    """The result of a run killed at each of these points, and how many records it had finished by each kill."""
    process = bench.forge()
    run = bench.wait_for_run(process)
    before: dict[Path, bytes] = {}
    records = []
    for point in points:
        bench.await_record(process, run / point.record, resumed=point is not points[0])
        time.sleep(point.seconds)
        process.send_signal(signal.SIGKILL)
        killed = process.wait(60) == -signal.SIGKILL
        end = time.monotonic() + PATIENCE
        while (alive := bench.survivors()) and time.monotonic() < end:
            time.sleep(0.02)
        assert alive == []

        now = done_so_far(run)
        assert now.items() >= before.items(), "something finished was done again"
        before = now
        records += [len(now)] * killed
        process = bench.start("resume", run.name)
    bench.finish(process)
    assert done_so_far(run).items() >= before.items(), "something finished was done again"
    assert bench.survivors() == []
    return finished(run), records


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="finds survivors through /proc")
@pytest.mark.parametrize(("runs", "kills"), [(1, 4), pytest.param(2, 20, marks=pytest.mark.volume)])
def test_a_killed_run_goes_on_to_the_same_end(
    runs: int, kills: int, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    """Each run is killed several times on its way, between its records: most of what a kill costs is to start again."""
    whole = Bench(tmp_path / "whole", clean_environment)
    process = whole.forge()
    run = whole.wait_for_run(process)
    whole.finish(process)
    expected = finished(run)
    assert [attempt[:3] for attempt in expected.attempts] == EXPECTED
    assert expected.best == expected.attempts[3][3]
    assert expected.replies == sorted(ANSWERS)

    points = points_of(run, kills, random.Random(SEED))
    benches = [Bench(tmp_path / f"{number:02d}", clean_environment) for number in range(runs)]
    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        ends = list(pool.map(kill_and_resume, benches, [points[number::runs] for number in range(runs)]))
    for number, (result, records) in enumerate(ends):
        killed = ", ".join(f"{point.seconds:.2f} s after {point.record}" for point in points[number::runs])
        assert result == expected, f"seed {SEED}, killed {killed}, with {records} records finished"
    hits = [count for _, records in ends for count in records]
    assert len(hits) > kills / 2, "the runs had ended before they were killed"
    assert len(set(hits)) >= 3, "the kills did not spread over the run"

"""Measures how often timing decides rightly while another process uses the machine.

The programs are as fast as the reference, or faster by a known factor. Meanwhile the other process works at full load
for random times.

    python benchmarks/noise.py [--runs 200,50,50] [--lanes 0,1:2,3] [--load one|none] [--json FILE] [--minutes 30]

A lane is the processors that one judge, its workers and its load may use; lanes run side by side. By default there is
one lane, with all processors. Everything runs through the real Judge with its usual settings. The table is printed as
Markdown, with the machine it was measured on; docs/timing.md has one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge import platforms
from kforge.evaluation import Judge
from kforge.platforms import host
from kforge.records import Candidate, EvaluationPolicy, Problem

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

STEPS = 30
"""How often the reference repeats its operation. A faster program repeats it less often."""
FACTORS = {"1.0": 30, "1.15": 26, "1.5": 20}
"""For each factor by which a program is faster, its number of steps."""
WORK = {
    "tanh": ("torch.tanh(x)", "torch.randn(64, 1024)"),
    "matmul": ("x @ self.weight", "torch.randn(128, 256)"),
    "softmax": ("torch.softmax(x, -1)", "torch.randn(256, 1024)"),
    "layer_norm": ("nn.functional.layer_norm(x, (1024,))", "torch.randn(128, 1024)"),
    "tiny": ("torch.tanh(x)", "torch.randn(16, 64)"),
}
SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        self.weight = nn.Parameter(torch.randn(256, 256))

    def forward(self, x):
        for _ in range(self.steps):
            y = {operator}
        return y


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{steps}]
"""
LOADED, IDLE = (0.5, 5.0), (0.5, 5.0)
"""Bounds in seconds of the times for which the other process works and sleeps. Times are drawn uniformly."""
ENOUGH_TIMING = 15.0
"""Seconds of timing after which a finding no longer counts as decided in the table."""


@dataclass(frozen=True)
class Found:
    """The result of one evaluation."""

    factor: str
    work: str
    finding: str
    median: float
    low: float
    high: float
    seconds: float
    """Seconds of the timing stage."""
    pairs: int
    foreign: float
    """Share of the machine that other processes used during timing, averaged over the pairs."""
    doubt: str | None = None


def subject(work: str, factor: str) -> tuple[Problem, Candidate]:
    operator, inputs = WORK[work]
    source = SOURCE.format(operator=operator, inputs=inputs, steps=STEPS)
    program = source.replace("class Model(", "class ModelNew(").replace("= steps", f"= {FACTORS[factor]}")
    return Problem(name=work, source=source), Candidate(source=program, platform="null")


def disturb(processors: set[int]) -> None:
    """Work and sleep for random times, until killed."""
    host.pin(0, processors)
    chance = random.Random()  # noqa: S311 - a load, not a secret
    while True:
        end = time.monotonic() + chance.uniform(*LOADED)
        while time.monotonic() < end:
            sum(range(10_000))
        time.sleep(chance.uniform(*IDLE))


def run_lane(processors: set[int], tasks: Queue[tuple[str, str]], found: Queue[Found | None], loaded: bool) -> None:
    """Evaluate the tasks of a queue until an empty one comes. Puts each result, and None at the end, into `found`."""
    host.pin(0, processors)
    load = multiprocessing.Process(target=disturb, args=(processors,), daemon=True)
    if loaded:
        load.start()
    with (
        tempfile.TemporaryDirectory() as cache,
        Judge(
            platforms.find("null"),
            EvaluationPolicy(compile_baseline=False),
            cache=Path(cache),
            environment=dict(os.environ),
        ) as judge,
    ):
        while (task := tasks.get())[0]:
            factor, work = task
            evaluation = judge.evaluate(*subject(work, factor))
            assert evaluation.correct is not None, evaluation.verdict
            claim, shares = evaluation.correct.timing.comparisons[0], evaluation.receipt.samples["foreign load"]
            found.put(
                Found(
                    factor=factor,
                    work=work,
                    finding=claim.finding,
                    median=round(claim.speedup.median, 4),
                    low=round(claim.speedup.low, 4),
                    high=round(claim.speedup.high, 4),
                    seconds=evaluation.receipt.stages["time"],
                    pairs=evaluation.correct.timing.pairs,
                    foreign=round(statistics.fmean(shares), 3),
                    doubt=claim.doubt,
                )
            )
    if loaded:
        load.kill()
    found.put(None)


def measure(lanes: list[set[int]], runs: dict[str, int], *, loaded: bool, until: float) -> list[Found]:
    """Return the wanted number of evaluations of each factor; fewer if the time `until` comes first."""
    works = itertools.cycle(WORK)
    wanted = [(factor, next(works)) for factor, count in runs.items() for _ in range(count)]
    random.Random(0).shuffle(wanted)  # noqa: S311 - so that drift of the machine affects all factors
    tasks: Queue[tuple[str, str]] = multiprocessing.Queue(len(lanes))
    answers: Queue[Found | None] = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=run_lane, args=(lane, tasks, answers, loaded)) for lane in lanes]
    for process in processes:
        process.start()
    found: list[Found] = []
    waiting, open_lanes = iter(wanted), len(lanes)
    for _ in lanes:
        tasks.put(next(waiting, ("", "")))
    while open_lanes:
        answer = answers.get()
        if answer is None:
            open_lanes -= 1
            continue
        found.append(answer)
        print(f"{len(found)}/{len(wanted)} {json.dumps(asdict(answer))}", file=sys.stderr, flush=True)
        tasks.put(next(waiting, ("", "")) if time.monotonic() < until else ("", ""))
    return found


def table(found: list[Found]) -> str:
    columns = ("truly", "runs", "faster", "slower", "cannot tell", "decided", "median found", "90 % of the medians")
    lines = [f"| {' | '.join(columns)} | longest timing |", "|" + " --- |" * (len(columns) + 1)]
    for factor in FACTORS:
        rows = [each for each in found if each.factor == factor]
        if not rows:
            continue
        findings = Counter(each.finding for each in rows)
        medians = sorted(each.median for each in rows)
        low, high = (medians[round(share * (len(rows) - 1))] for share in (0.05, 0.95))
        decided = (
            "–"  # noqa: RUF001 - nothing to decide
            if factor == "1.0"
            else f"{sum(e.finding == 'faster' and e.seconds <= ENOUGH_TIMING for e in rows) / len(rows):.0%}"
        )
        name = "equal" if factor == "1.0" else f"{STEPS / FACTORS[factor]:.2f}x the steps"
        lines.append(
            f"| {name} | {len(rows)} | {findings['faster']} | {findings['slower']} | {findings['cannot tell']} "
            f"| {decided} | {statistics.median(medians):.3f}x | {low:.3f} to {high:.3f} "
            f"| {max(each.seconds for each in rows):.1f} s |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="200,50,50", help="evaluations of equal, 1.15x and 1.5x programs")
    parser.add_argument("--lanes", default=",".join(map(str, sorted(host.processors()))), help="0,1:2,3: two lanes")
    parser.add_argument("--load", choices=("one", "none"), default="one", help="other processes in each lane")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no evaluation later than this")
    parser.add_argument("--json", type=Path, help="write every finding to this file")
    given = parser.parse_args()
    lanes = [{int(number) for number in lane.split(",")} for lane in given.lanes.split(":")]
    runs = dict(zip(FACTORS, map(int, given.runs.split(",")), strict=True))
    found = measure(lanes, runs, loaded=given.load == "one", until=time.monotonic() + 60 * given.minutes)
    shares = statistics.fmean(each.foreign for each in found)
    about: dict[str, Any] = {
        "machine": host.describe(),
        "processors of a lane": len(lanes[0]),
        "lanes": len(lanes),
        "load": given.load,
        "mean share of the machine that others used": round(shares, 2),
    }
    if given.json is not None:
        given.json.write_text(json.dumps({**about, "found": [asdict(each) for each in found]}, indent=1) + "\n")
    print(json.dumps(about))
    print(table(found))


if __name__ == "__main__":
    main()

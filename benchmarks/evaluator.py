"""What the evaluator itself is worth: does it claim wins that are none, and where does its time go?

    python benchmarks/evaluator.py a-a --evaluations 200     the same program against itself: wins claimed
    python benchmarks/evaluator.py warm --evaluations 10     seconds a stage of a warm evaluation
    python benchmarks/evaluator.py fresh --evaluations 5     the speedup that fresh runs report: how far they are apart
    python benchmarks/evaluator.py start --evaluations 40    milliseconds until a sandboxed worker is born

Everything runs through the real Judge. The last line is one JSON document, with the machine it was measured on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge import platforms, problems
from kforge.evaluation import Judge, launch
from kforge.evaluation.nursery import Workers
from kforge.evaluation.sandbox import LADDER, Warden
from kforge.platforms import host
from kforge.records import Candidate, Evaluation, Problem

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "softmax_scale"


@dataclass(frozen=True)
class Subject:
    """A problem, a program for it, and the platform they run on."""

    problem: Problem
    candidate: Candidate
    platform: platforms.Platform

    @classmethod
    def load(cls, problem: Path, candidate: Path | None, platform: str, overrides: tuple[str, ...] = ()) -> Subject:
        """Without a candidate it is the reference itself."""
        loaded = problems.load(problem, overrides)
        own = loaded.source.replace("class Model(", "class ModelNew(")
        source = own if candidate is None else candidate.read_text()
        return cls(loaded, Candidate(source=source, platform=platform), platforms.find(platform))

    def judge(self, folder: Path, *, compile_baseline: bool = False) -> Judge:
        return Judge(self.platform, cache=folder, environment=dict(os.environ), compile_baseline=compile_baseline)

    def evaluate(self, judge: Judge) -> Evaluation:
        evaluation = judge.evaluate(self.problem, self.candidate)
        assert evaluation.correct is not None, evaluation.verdict
        return evaluation


def a_against_a(subject: Subject, evaluations: int) -> dict[str, Any]:
    findings: Counter[str] = Counter()
    medians, widths = [], []
    with tempfile.TemporaryDirectory() as folder, subject.judge(Path(folder)) as judge:
        for number in range(evaluations):
            correct = subject.evaluate(judge).correct
            assert correct is not None
            claim = correct.timing.comparisons[0]
            findings[claim.finding if claim.doubt is None else "disturbed"] += 1
            medians.append(claim.speedup.median)
            widths.append((claim.speedup.high - claim.speedup.low) / 2 / claim.speedup.median)
            print(f"{number + 1}: {claim.speedup.median:.3f} {dict(findings)}", file=sys.stderr, flush=True)
    return {
        "evaluations": evaluations,
        "findings": dict(findings),
        "median of medians": round(statistics.median(medians), 4),
        "median half-width": round(statistics.median(widths), 4),
    }


def warm(subject: Subject, evaluations: int) -> dict[str, Any]:
    """A correct candidate again and again, by a judge that is warm."""
    walls: list[float] = []
    stages: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, subject.judge(Path(folder)) as judge:
        begin = time.monotonic()
        subject.evaluate(judge)
        cold = time.monotonic() - begin
        for _ in range(evaluations):
            begin = time.monotonic()
            evaluation = subject.evaluate(judge)
            walls.append(time.monotonic() - begin)
            for name, seconds in evaluation.receipt.stages.items():
                stages.setdefault(name, []).append(seconds)
    assert evaluation.correct is not None
    claim = evaluation.correct.timing.comparisons[0].speedup
    table = {name: round(statistics.median(values), 3) for name, values in stages.items()}
    print("\n".join(f"{name:>10} {seconds:8.3f} s" for name, seconds in table.items()))
    return {
        "evaluations": evaluations,
        "cases": evaluation.correct.cases,
        "pairs": evaluation.correct.timing.pairs,
        "speedup": [round(each, 3) for each in (claim.low, claim.median, claim.high)],
        "labels": list(evaluation.labels),
        "cold seconds": round(cold, 2),
        "median seconds": round(statistics.median(walls), 3),
        "slowest": round(max(walls), 3),
        "stages": table,
    }


def fresh(subject: Subject, evaluations: int) -> dict[str, Any]:
    """Each by a judge of its own."""
    medians = []
    for _ in range(evaluations):
        with tempfile.TemporaryDirectory() as folder, subject.judge(Path(folder)) as judge:
            correct = subject.evaluate(judge).correct
            assert correct is not None
            medians.append(correct.timing.comparisons[0].speedup.median)
    middle = statistics.median(medians)
    return {
        "evaluations": evaluations,
        "speedups": [round(each, 4) for each in medians],
        "furthest from the median": round(max(abs(each / middle - 1) for each in medians), 4),
    }


def start(subject: Subject, evaluations: int) -> dict[str, Any]:
    """What a worker's birth behind the first layer of the ladder takes, as a referee sees it."""
    warden = Warden.fork()
    from kforge.evaluation import worker  # noqa: F401 - what a referee has imported when it splits off its nursery

    births = []
    with tempfile.TemporaryDirectory() as folder:
        workers = Workers(
            work=Path(folder) / "work", tool_path=os.environ["PATH"], threads=host.threads(), extra={},
            readable=(subject.platform.folder,), device_nodes=subject.platform.adapter.device_nodes(), ladder=LADDER,
            warden=warden,
        )  # fmt: skip
        layer = workers.sandbox.partition(":")[0]
        for _number in range(evaluations):
            begin = time.monotonic()
            process: launch.Process = workers.take(Path(folder) / "builds")
            births.append(1000 * (time.monotonic() - begin))
            process.kill()
        workers.close()
    return {
        "layer": layer,
        "births": evaluations,
        "median ms": round(statistics.median(births), 1),
        "p95 ms": round(sorted(births)[int(0.95 * len(births))], 1),
    }


MEASUREMENTS = {"a-a": a_against_a, "warm": warm, "fresh": fresh, "start": start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=MEASUREMENTS)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--problem", type=Path, default=EXAMPLE / "problem.py")
    parser.add_argument("--candidate", type=Path, help="default: the example's correct one; a-a takes the reference")
    parser.add_argument("--platform", default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    candidate = options.candidate or EXAMPLE / "candidates" / "correct.py"
    chosen = None if options.what == "a-a" else candidate
    subject = Subject.load(options.problem, chosen, options.platform, tuple(options.set))
    found = MEASUREMENTS[options.what](subject, options.evaluations)
    print(json.dumps({"what": options.what, "machine": host.describe(), **found}))


if __name__ == "__main__":
    main()

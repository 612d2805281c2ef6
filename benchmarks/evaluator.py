"""What the evaluator itself is worth: does it claim wins that are none, and where does its time go?

    python benchmarks/evaluator.py a-a --evaluations 200     the same program against itself: wins claimed
    python benchmarks/evaluator.py warm --evaluations 10     seconds a stage of a warm evaluation
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
from pathlib import Path
from typing import Any

from kforge import platforms, problems
from kforge.evaluation import Judge, launch
from kforge.evaluation.nursery import Workers
from kforge.evaluation.sandbox import LADDER, Warden
from kforge.platforms import host
from kforge.records import Candidate

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "softmax_scale"


def open_judge(folder: str) -> Judge:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return Judge(platforms.find("cpu"), cache=Path(folder), environment=environment, compile_baseline=False)


def a_against_a(evaluations: int, problem_path: Path) -> dict[str, Any]:
    """The reference itself as the candidate."""
    problem = problems.load(problem_path)
    candidate = Candidate(source=problem.source.replace("class Model(", "class ModelNew("), platform="cpu")
    findings: Counter[str] = Counter()
    medians, widths = [], []
    with tempfile.TemporaryDirectory() as folder, open_judge(folder) as judge:
        for number in range(evaluations):
            correct = judge.evaluate(problem, candidate).correct
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


def warm(evaluations: int, problem_path: Path) -> dict[str, Any]:
    """A correct candidate again and again, by a judge that is warm."""
    problem = problems.load(problem_path)
    candidate = Candidate(source=(problem_path.parent / "candidates" / "correct.py").read_text(), platform="cpu")
    walls: list[float] = []
    stages: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, open_judge(folder) as judge:
        judge.evaluate(problem, candidate)
        for _ in range(evaluations):
            start = time.monotonic()
            evaluation = judge.evaluate(problem, candidate)
            walls.append(time.monotonic() - start)
            assert evaluation.correct is not None
            for name, seconds in evaluation.receipt.stages.items():
                stages.setdefault(name, []).append(seconds)
    print("\n".join(f"{name:>10} {statistics.median(values):8.3f} s" for name, values in stages.items()))
    return {
        "evaluations": evaluations,
        "cases": evaluation.correct.cases,
        "median seconds": round(statistics.median(walls), 3),
        "slowest": round(max(walls), 3),
    }


def start(evaluations: int, _: Path) -> dict[str, Any]:
    """What a worker's birth behind the first layer of the ladder takes, as a referee sees it."""
    warden = Warden.fork()
    from kforge.evaluation import worker  # noqa: F401 - what a referee has imported when it splits off its nursery

    births = []
    with tempfile.TemporaryDirectory() as folder:
        workers = Workers(
            work=Path(folder) / "work", tool_path=os.environ["PATH"], threads=host.threads(), extra={},
            readable=(platforms.find("cpu").folder,), device_nodes=(), ladder=LADDER, warden=warden,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("a-a", "warm", "start"))
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--problem", type=Path, default=EXAMPLE / "problem.py")
    options = parser.parse_args()
    measure = {"a-a": a_against_a, "warm": warm, "start": start}[options.what]
    found = measure(options.evaluations, options.problem)
    print(json.dumps({"what": options.what, "machine": host.describe(), **found}))


if __name__ == "__main__":
    main()

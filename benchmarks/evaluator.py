"""Measures the evaluator itself: whether it claims false wins, and where its time goes.

    python benchmarks/evaluator.py a-a --evaluations 200     the same program against itself: wins claimed
    python benchmarks/evaluator.py warm --evaluations 10     seconds of each stage of a warm evaluation
    python benchmarks/evaluator.py fresh --evaluations 5     how far the speedups that fresh runs report are apart
    python benchmarks/evaluator.py start --evaluations 40    milliseconds until a sandboxed worker has started

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
from typing import TYPE_CHECKING, Any

import numpy as np

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.processes.worker_start import Workers
from kforge.evaluation.sandbox import LADDER, Warden
from kforge.evaluation.timing.statistics import half_width, speedup
from kforge.platforms import host
from kforge.records import Candidate, Evaluation, EvaluationLimits, EvaluationPolicy, Problem, Timing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.evaluation.processes import launch

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "softmax_scale"


@dataclass(frozen=True)
class Subject:
    """A problem, a program for it, and the platform they run on."""

    problem: Problem
    candidate: Candidate
    platform: platforms.Platform
    compile_baseline: bool = False
    """Whether the program is compared with `torch.compile` too. The first evaluation measures it; others reuse that."""

    @classmethod
    def load(
        cls,
        problem: Path,
        candidate: Path | None,
        platform: str,
        overrides: tuple[str, ...] = (),
        *,
        compile_baseline: bool = False,
    ) -> Subject:
        """Load a problem and a program for it. Without a candidate, the program is the reference itself."""
        loaded = problems.load(problem, overrides)
        own = loaded.source.replace("class Model(", "class ModelNew(")
        source = own if candidate is None else candidate.read_text()
        return cls(loaded, Candidate(source=source, platform=platform), platforms.find(platform), compile_baseline)

    def judge(self, folder: Path, *, call_deadline: float = EvaluationLimits().call_deadline) -> Judge:
        return Judge(
            self.platform,
            EvaluationPolicy(compile_baseline=self.compile_baseline),
            cache=folder,
            environment=dict(os.environ),
            limits=EvaluationLimits(call_deadline=call_deadline),
        )

    def evaluate(self, judge: Judge) -> tuple[Evaluation, Timing]:
        """Return the evaluation of the program, and its timing. Raises SystemExit for a program that is not correct."""
        evaluation = judge.evaluate(self.problem, self.candidate)
        if evaluation.correct is None:
            raise SystemExit(f"{self.problem.name} on {self.platform.name} is not correct: {evaluation.verdict}")
        return evaluation, evaluation.correct.timing


def receipt_of(evaluation: Evaluation) -> dict[str, Any]:
    """Return the receipt of an evaluation as a document, without samples, stages, trace and absent fields."""
    kept = evaluation.receipt.model_dump(mode="json", exclude={"samples", "stages", "trace"})
    return {name: value for name, value in kept.items() if value is not None}


def claims(timing: Timing) -> dict[str, Any]:
    """Return every speedup with its interval, its finding, and the baseline's identity."""
    return {
        each.baseline: {
            "speedup": [round(bound, 4) for bound in (each.speedup.low, each.speedup.median, each.speedup.high)],
            "finding": each.finding,
            "identity": each.identity,
            **({} if each.doubt is None else {"doubt": each.doubt}),
        }
        for each in timing.comparisons
    }


def measured_half_width(evaluation: Evaluation) -> float:
    """Return the half-width of the measured interval of the ratio to eager, as a share of the median.

    The allowance for process-to-process variation is not part of it.
    """
    eager, candidate = (np.asarray(evaluation.receipt.samples[side]) for side in ("eager", "candidate"))
    return half_width(speedup(np.log(eager) - np.log(candidate), np.random.default_rng(0)))


# --- measurements: each yields its results so far, and at last all of them -----------------------------------


def a_against_a(subject: Subject, evaluations: int) -> Iterator[dict[str, Any]]:
    findings: Counter[str] = Counter()
    medians, widths = [], []
    with tempfile.TemporaryDirectory() as folder, subject.judge(Path(folder)) as judge:
        for number in range(1, evaluations + 1):
            evaluation, timing = subject.evaluate(judge)
            claim = timing.comparisons[0]
            findings[claim.finding if claim.doubt is None else "disturbed"] += 1
            medians.append(claim.speedup.median)
            widths.append(half_width(claim.speedup))
            print(f"{number}: {claim.speedup.median:.3f} {dict(findings)}", file=sys.stderr, flush=True)
            yield {
                "evaluations": number,
                "findings": dict(findings),
                "median of medians": round(statistics.median(medians), 4),
                "median half-width": round(statistics.median(widths), 4),
                "receipt": receipt_of(evaluation),
            }


def warm(subject: Subject, evaluations: int) -> Iterator[dict[str, Any]]:
    """Evaluate a correct candidate several times with one judge: once when the judge is new, then when it is warm."""
    walls: list[float] = []
    widths: list[float] = []
    stages: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, subject.judge(Path(folder)) as judge:
        begin = time.monotonic()
        first, _ = subject.evaluate(judge)
        cold = time.monotonic() - begin
        about = {
            "cold seconds": round(cold, 2),
            # the receipt has no stage for the start of the referee, which imports torch
            "cold stages": {"referee": round(cold - sum(first.receipt.stages.values()), 3), **first.receipt.stages},
        }
        _print_stages("cold", about["cold stages"])
        yield {**about, "receipt": receipt_of(first)}
        for _ in range(evaluations):
            begin = time.monotonic()
            evaluation, timing = subject.evaluate(judge)
            walls.append(time.monotonic() - begin)
            widths.append(measured_half_width(evaluation))
            for name, seconds in evaluation.receipt.stages.items():
                stages.setdefault(name, []).append(seconds)
    assert evaluation.correct is not None
    table = {name: round(statistics.median(values), 3) for name, values in stages.items()}
    _print_stages("warm", table)
    yield {
        "evaluations": evaluations,
        "cases": evaluation.correct.cases,
        "pairs": timing.pairs,
        "half-width": round(statistics.median(widths), 4),
        "widest": round(max(widths), 4),
        "claims": claims(timing),
        "labels": list(evaluation.labels),
        **about,
        "median seconds": round(statistics.median(walls), 3),
        "slowest": round(max(walls), 3),
        "stages": table,
        "receipt": receipt_of(evaluation),
    }


def _print_stages(title: str, table: dict[str, float]) -> None:
    print("\n".join([f"{title}:", *(f"{name:>10} {seconds:8.3f} s" for name, seconds in table.items())]), flush=True)


def fresh(subject: Subject, evaluations: int) -> Iterator[dict[str, Any]]:
    """Evaluate a program several times, each time with a new judge and an empty cache."""
    medians: list[float] = []
    for _ in range(evaluations):
        with tempfile.TemporaryDirectory() as folder, subject.judge(Path(folder)) as judge:
            evaluation, timing = subject.evaluate(judge)
        medians.append(timing.speedup.median)
        middle = statistics.median(medians)
        yield {
            "evaluations": len(medians),
            "speedups": [round(each, 4) for each in medians],
            "furthest from the median": round(max(abs(each / middle - 1) for each in medians), 4),
            "receipt": receipt_of(evaluation),
        }


def start(subject: Subject, evaluations: int) -> Iterator[dict[str, Any]]:
    """Measure how long a worker takes to start behind the first usable layer of the ladder, as a referee sees it."""
    warden = Warden.fork()
    from kforge.evaluation.worker import main as worker  # noqa: F401 - a referee imports it before it forks its fork server

    births = []
    with tempfile.TemporaryDirectory() as folder:
        workers = Workers(
            work=Path(folder) / "work", tool_path=os.environ["PATH"], threads=host.threads(), extra={},
            platform=subject.platform.folder, device_nodes=subject.platform.adapter.device_nodes(), ladder=LADDER,
            warden=warden,
        )  # fmt: skip
        layer = workers.sandbox.partition(":")[0]
        for _number in range(evaluations):
            begin = time.monotonic()
            process: launch.Process = workers.take(Path(folder) / "builds")
            births.append(1000 * (time.monotonic() - begin))
            process.kill()
        workers.close()
    yield {
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
    *_, found = MEASUREMENTS[options.what](subject, options.evaluations)
    print(json.dumps({"what": options.what, "machine": host.describe(), **found}))


if __name__ == "__main__":
    main()

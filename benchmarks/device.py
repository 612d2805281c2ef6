"""Measures how long evaluations on a device take, and how reliable they are: `make device-bench`.

    python benchmarks/device.py                        all parts, some six minutes on an H200
    python benchmarks/device.py --only cuda,faults     only these parts; the others stay in the file as they were
    python benchmarks/device.py --show                 measure nothing: only write the tables of the existing files

Each part's results are written to benchmarks/<device>.json and docs/benchmarks.md as soon as some of them are known.

`cold` means a fresh cache folder and a fresh judge. torch and the driver still come from the page cache, because a
referee is started once before anything is measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluator import Subject, a_against_a, claims, fresh, receipt_of, warm
from results import RECOVERY, Results, Section, show

from kforge import platforms
from kforge.errors import EvaluationError
from kforge.platforms import host
from kforge.records import Correct, RuntimeFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.evaluation import Judge
    from kforge.records import Evaluation, Verdict

ROOT = Path(__file__).resolve().parents[1]
ELEMENTWISE = ROOT / "benchmarks" / "elementwise"
CANDIDATES = ROOT / "tests" / "platforms" / "cuda" / "candidates"
EXPLOITS = ROOT / "tests" / "exploits"
PAGE = ROOT / "docs" / "benchmarks.md"
DEVICE_OF = "cuda"
"""The platform whose device is measured."""
FAULT_DEADLINE = 10.0
"""Deadline in seconds for one call of a program that never ends."""
FAULTS = {"endless kernel": "cuda_endless_kernel", "illegal access": "cuda_illegal_access"}


@dataclass(frozen=True)
class Knobs:
    """Numbers of evaluations, and whether `torch.compile` is a baseline too."""

    warm: int
    fresh: int
    a_a: int
    compile_baseline: bool


def evaluation_of(program: str, platform: str) -> Callable[[Knobs], Iterator[Section]]:
    """Return a part that evaluates a program for the elementwise problem, first cold and then warm."""

    def measure(knobs: Knobs) -> Iterator[Section]:
        problem, candidate = ELEMENTWISE / "problem.py", ELEMENTWISE / program
        yield from warm(Subject.load(problem, candidate, platform, compile_baseline=knobs.compile_baseline), knobs.warm)

    return measure


def fresh_runs(knobs: Knobs) -> Iterator[Section]:
    yield from fresh(Subject.load(ELEMENTWISE / "problem.py", ELEMENTWISE / "with_cuda.py", "cuda"), knobs.fresh)


def the_same_twice(knobs: Knobs) -> Iterator[Section]:
    """Evaluate a softmax against itself. It is small, so that a hundred evaluations take two minutes."""
    problem = CANDIDATES / "softmax" / "problem.py"
    yield from a_against_a(Subject.load(problem, None, "cuda", ("ROWS=1024", "COLUMNS=4096")), knobs.a_a)


def by_hand(knobs: Knobs) -> Iterator[Section]:
    """Evaluate the programs written by hand, with one judge per platform. All share a cache, which keeps baselines."""
    programs: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for platform in ("cuda", "triton"):
            paths = sorted(CANDIDATES.glob(f"*/with_{platform}.py"))
            subjects = {
                f"{path.parent.name}, {platform}": Subject.load(
                    path.with_name("problem.py"), path, platform, compile_baseline=knobs.compile_baseline
                )
                for path in paths
            }
            with next(iter(subjects.values())).judge(Path(folder)) as judge:
                for name, subject in subjects.items():
                    evaluation = judge.evaluate(subject.problem, subject.candidate)
                    programs[name] = _program(evaluation)
                    print(f"{name}: {programs[name]}", flush=True)
                    yield {"programs": dict(programs), "receipt": receipt_of(evaluation)}


def _program(evaluation: Evaluation) -> dict[str, Any]:
    about = {"verdict": _words(evaluation.verdict), "labels": list(evaluation.labels)}
    if evaluation.correct is None:
        return {**about, "reason": evaluation.verdict.reason, "claims": {}}
    timing = evaluation.correct.timing
    return {**about, "claims": claims(timing), "seconds": timing.seconds.median, "pairs": timing.pairs}


def survived(_: Knobs) -> Iterator[Section]:
    """Evaluate a program that breaks its device's context or never ends, then an honest one with the same judge."""
    problem = EXPLOITS / "problems" / "large_chain.py"
    honest = Subject.load(problem, None, DEVICE_OF)
    faults: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, honest.judge(Path(folder), call_deadline=FAULT_DEADLINE) as judge:
        before, _timing = honest.evaluate(judge)
        for name, file in FAULTS.items():
            broken = Subject.load(problem, EXPLOITS / "cheats" / "harness" / f"{file}.py", DEVICE_OF)
            begin = time.monotonic()
            verdict = _judged(judge, broken)
            told = time.monotonic()
            tries, after = 0, verdict
            while not isinstance(after, Correct) and time.monotonic() - told < 2 * RECOVERY:
                tries, after = tries + 1, _judged(judge, honest)
            faults[name] = {
                "verdict": _words(verdict),
                "seconds": round(told - begin, 2),
                "call deadline": FAULT_DEADLINE,
                "survived": isinstance(verdict, RuntimeFailure) and isinstance(after, Correct),
                "next": _words(after),
                "tries": tries,
                "right after seconds": round(time.monotonic() - told, 2),
            }
            print(f"{name}: {faults[name]}", flush=True)
            yield {"faults": dict(faults), "receipt": receipt_of(before)}


def _judged(judge: Judge, subject: Subject) -> Verdict | EvaluationError:
    """Return the verdict, or the error if the evaluator itself failed. A run would then evaluate again."""
    try:
        return judge.evaluate(subject.problem, subject.candidate).verdict
    except EvaluationError as error:
        return error


def _words(verdict: Verdict | EvaluationError) -> str:
    if isinstance(verdict, EvaluationError):
        return f"evaluator failed: {verdict}"
    fault = f": {verdict.fault}" if isinstance(verdict, RuntimeFailure) else ""
    return f"{verdict.state}{fault}".replace("_", " ")


PARTS: dict[str, Callable[[Knobs], Iterator[Section]]] = {
    "cuda": evaluation_of("with_cuda.py", "cuda"),
    "triton": evaluation_of("with_triton.py", "triton"),
    "load_inline": evaluation_of("with_load_inline.py", "cuda"),
    "faults": survived,
    "candidates": by_hand,
    "fresh": fresh_runs,
    "a-a": the_same_twice,
}
"""The parts by name, in the order in which they are measured: the longest comes last."""


def measure(names: list[str], knobs: Knobs, results: Results, commit: str) -> list[str]:
    """Measure parts, and write the results of each as it goes on. Returns the parts that failed, with the reasons.

    A part that fails does not stop the others.
    """
    failed = []
    for name in names:
        begin = time.monotonic()
        print(f"--- {name}", flush=True)
        try:
            for section in PARTS[name](knobs):
                results.put(name, {"date": _now(), "commit": commit, "machine": host.describe(), **section})
        except (Exception, SystemExit) as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
            print(failed[-1], file=sys.stderr, flush=True)
        print(f"--- {name} took {time.monotonic() - begin:.1f} s", flush=True)
    return failed


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def commit_here() -> str:
    """Return the commit of this tree, marked if a file that is measured differs from it."""
    measured = ("--", "src", "tests", "benchmarks/*.py")
    try:
        told = [
            subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S607
            for arguments in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", *measured))
        ]
    except (OSError, subprocess.CalledProcessError):
        return "not known"
    return told[0] + (" with changes" if told[1] else "")


def device_name() -> str:
    """Return the device's name as receipts give it. Raises SystemExit if the device cannot be used.

    This starts a referee, which brings torch into the page cache.
    """
    platform = platforms.find(DEVICE_OF)
    if (reason := platform.adapter.probe()) is not None:
        raise SystemExit(f"nothing can be measured here: {reason}")
    subject = Subject.load(ELEMENTWISE / "problem.py", None, DEVICE_OF)
    with tempfile.TemporaryDirectory() as folder, subject.judge(Path(folder)) as judge:
        return judge.device()


def _names(text: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := set(names) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return [name for name in PARTS if name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", type=_names, default=list(PARTS), metavar="PART,…", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--warm", type=int, default=4, metavar="N", help="warm evaluations of each program")
    parser.add_argument("--fresh", type=int, default=5, metavar="N", help="fresh runs")
    parser.add_argument("--a-a", type=int, default=100, metavar="N", help="evaluations of a program against itself")
    parser.add_argument("--no-compile-baseline", action="store_true", help="compare with eager only")
    parser.add_argument("--commit", default="", help="what is measured, where git cannot tell")
    parser.add_argument("--show", action="store_true", help="measure nothing, only write the tables")
    options = parser.parse_args()
    if options.show:
        for path in sorted((ROOT / "benchmarks").glob("*.json")):
            show(path, PAGE)
        return
    results = Results(device_name(), ROOT / "benchmarks", PAGE)
    knobs = Knobs(options.warm, options.fresh, options.a_a, not options.no_compile_baseline)
    failed = measure(options.only, knobs, results, options.commit or commit_here())
    print(f"written to {results.path.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")
    if failed:
        raise SystemExit("not measured: " + "; ".join(failed))


if __name__ == "__main__":
    main()

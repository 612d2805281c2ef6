"""Compares the speedups of one program from a cold evaluation, a warm judge and `kforge warm`.

    python benchmarks/modes.py [--problem FILE] [--candidate FILE] [-p cpu] [--rounds 20] [--json FILE]

    cold      `kforge eval` in a process of its own, which starts everything afresh
    judge     one Judge for all rounds, as in a run with several candidates
    warm      `kforge eval` while `kforge warm` keeps torch in memory for it

Every round evaluates once in each mode, in random order, so that drift of the machine affects all modes alike. Without
a candidate, the program is the reference itself. For any program the true ratio of two modes is 1. The interval of a
ratio is a bootstrap interval of the median of paired log-ratios.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from evaluator import Subject

from kforge.evaluation.timing.statistics import speedup
from kforge.platforms import host

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "softmax_scale"
READY_SECONDS = 120.0


def evaluated(subject: Subject, folder: Path, cache: Path) -> float:
    """Return the median speedup over eager that a fresh `kforge eval` reports. Raises SystemExit if it reports none."""
    problem, candidate = folder / "problem.py", folder / "candidate.py"
    command = [
        sys.executable, "-m", "kforge", "eval", str(problem), str(candidate), "-p", subject.platform.name,
        "--no-compile-baseline", "--json",
    ]  # fmt: skip
    ran = subprocess.run(
        command, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True, check=False
    )
    try:
        return float(json.loads(ran.stdout)["speedup"]["eager"]["median"])
    except (ValueError, KeyError, TypeError):
        raise SystemExit(f"kforge eval gave no speedup: {ran.stdout[-500:]}{ran.stderr[-500:]}") from None


def measure(subject: Subject, rounds: int) -> dict[str, list[float]]:
    """Return the speedups that each mode reports, one for each round."""
    found: dict[str, list[float]] = {"cold": [], "judge": [], "warm": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "problem.py").write_text(subject.problem.source)
        (folder / "candidate.py").write_text(subject.candidate.source)
        caches = {mode: folder / mode for mode in found}
        with subject.judge(caches["judge"]) as judge, _Warm(subject, caches["warm"]):
            modes: dict[str, Callable[[], float]] = {
                "cold": lambda: evaluated(subject, folder, caches["cold"]),
                "judge": lambda: subject.evaluate(judge)[1].comparisons[0].speedup.median,
                "warm": lambda: evaluated(subject, folder, caches["warm"]),
            }
            for mode in modes.values():  # not counted: the first evaluation builds, and measures peaks
                mode()
            for number in range(rounds):
                for mode in random.sample(list(modes), len(modes)):
                    found[mode].append(modes[mode]())
                now = {mode: round(values[-1], 3) for mode, values in found.items()}
                print(f"{number + 1}/{rounds} {now}", file=sys.stderr, flush=True)
    return found


class _Warm:
    """Runs `kforge warm` in the background; its `with` block begins when it is ready."""

    def __init__(self, subject: Subject, cache: Path) -> None:
        command = [sys.executable, "-m", "kforge", "warm", "-p", subject.platform.name]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            if b"Ctrl-C" in self._process.stdout.readline():
                return
        raise SystemExit("kforge warm did not get ready")

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)


def ratios(found: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Return each mode's median speedup, its spread, and its ratio to the cold mode with a 95 % interval."""
    cold = np.log(np.asarray(found["cold"]))
    about = {}
    for mode, values in found.items():
        interval = speedup(np.log(np.asarray(values)) - cold, np.random.default_rng(0))
        about[mode] = {
            "median speedup": round(statistics.median(values), 4),
            "spread": round(float(np.std(np.log(values))), 4),
            "over cold": [round(bound, 4) for bound in (interval.low, interval.median, interval.high)],
        }
    return about


def table(about: dict[str, dict[str, Any]]) -> str:
    lines = ["| mode | median speedup | spread | over cold (95 %) |", "| --- | --- | --- | --- |"]
    for mode, row in about.items():
        low, middle, high = row["over cold"]
        ratio = "" if mode == "cold" else f"{middle:.3f} ({low:.3f} to {high:.3f})"
        lines.append(f"| {mode} | {row['median speedup']:.3f}x | {100 * math.expm1(row['spread']):.1f} % | {ratio} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", type=Path, default=EXAMPLE / "problem.py")
    parser.add_argument("--candidate", type=Path, help="default: the reference itself")
    parser.add_argument("-p", "--platform", default="cpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write every speedup to this file")
    given = parser.parse_args()
    subject = Subject.load(given.problem, given.candidate, given.platform)
    found = measure(subject, given.rounds)
    about = ratios(found)
    document = {
        "machine": host.describe(),
        "platform": given.platform,
        "problem": subject.problem.name,
        "candidate": given.candidate.name if given.candidate else "the reference",
        "modes": about,
        "speedups": {mode: [round(value, 4) for value in values] for mode, values in found.items()},
    }
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    print(table(about))


if __name__ == "__main__":
    main()

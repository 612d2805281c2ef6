"""Measures how long commands take on a store with many attempts, and how much memory.

    python benchmarks/store_scale.py FOLDER [--problems 500] [--attempts 10] [--only runs,show]

Half of the attempts are in runs of their own, and half in one suite. They are written once, by the store's own writers,
with texts and samples as large as those of real runs; a second call measures the same store again.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from kforge import settings
from kforge.problems import Task
from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    CompilationFailure,
    Correct,
    Evaluation,
    HotSpot,
    Interval,
    Outcome,
    Peaks,
    Problem,
    Profile,
    Receipt,
    Recommendation,
    Replication,
    Roofline,
    Span,
    TensorSpec,
    Timing,
    Usage,
    Verdict,
    Workload,
)
from kforge.run_options import new_options
from kforge.store import Header, RunFolder, SuiteFolder, SuiteHeader, suite_paths
from kforge.store.folder import run_paths
from kforge.suite.results import result_of

MOST_SECONDS, MOST_BYTES = 2.0, 200 * 2**20
"""Limits of each command: seconds, and bytes of memory."""
PLATFORM, MODEL = "null", "replay:nowhere"
"""A platform and a model that every machine has. Nothing is asked or evaluated."""
PAIRS, KERNEL_LINES, SPANS = 60, 120, 200
"""Timed pairs, lines of a program, and spans of a profile's timeline, as in real runs."""


class Measured(NamedTuple):
    """Exit status, time and memory of one command."""

    command: str
    status: int
    seconds: float
    processor: float
    """Processor seconds, which depend less on other processes than `seconds`."""
    bytes: int
    """Peak memory of the process."""


def measure(arguments: list[str], environment: dict[str, str]) -> Measured:
    """Run a command of kforge in a process of its own."""
    begin = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "kforge", *arguments], env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begin
    unit = 1 if sys.platform == "darwin" else 1024
    processor = used.ru_utime + used.ru_stime
    return Measured(f"kforge {arguments[0]}", process.returncode, seconds, processor, used.ru_maxrss * unit)


# --- the store --------------------------------------------------------------------------------------------


def interval(median: float) -> Interval:
    return Interval(median=median, low=median * 0.97, high=median * 1.03)


def evaluation(problem: Problem, program: Candidate, verdict: Verdict, chance: random.Random) -> Evaluation:
    drawn = {name: tuple(chance.gauss(1e-3, 2e-5) for _ in range(PAIRS)) for name in ("candidate", "eager", "compile")}
    receipt = Receipt(
        problem=problem.digest, candidate=program.digest, platform=PLATFORM, precision="strict", seed="5ec2e7",
        device="host", versions={"torch": "2", "python": "3.11"}, sandbox="namespaces", timer="monotonic",
        samples=drawn if isinstance(verdict, Correct) else {}, stages={"build": 4.0, "correctness": 2.0, "timing": 6.0},
    )  # fmt: skip
    return Evaluation(verdict=verdict, receipt=receipt, labels=("sanitized",))


def attempt_of(problem: Problem, index: int, chance: random.Random) -> Attempt:
    """Return an attempt: the first one fails to compile, and each later one is a little faster."""
    lines = [f"    x{line} = x + {chance.random():.6f}  # {index}" for line in range(KERNEL_LINES)]
    program = Candidate(source="\n".join(["class ModelNew:", *lines, ""]), platform=PLATFORM)
    if index == 0:
        failed = CompilationFailure(reason="g++ failed", log="kernel.cpp:3:9: error: expected ';'\n" * 40)
        return Attempt(
            index=0, phase="functional", candidate=program, evaluation=evaluation(problem, program, failed, chance),
            seconds=8.0, elapsed=8.0,
        )  # fmt: skip
    gain = 1.0 + index / 10
    compared = tuple(
        Comparison(baseline=name, identity="torch", seconds=1e-3 * gain, speedup=interval(gain))
        for name in ("eager", "compile")
    )
    timing = Timing(seconds=interval(1e-3), comparisons=compared, pairs=PAIRS)
    verdict = Correct(max_error=1e-7, tolerance=1e-5, cases=20, timing=timing)
    peaks = Peaks(device="host", bytes_per_second=6e10, flops_per_second=7e10)
    return Attempt(
        index=index,
        phase="functional" if index == 1 else "optimization",
        parent=index - 1,
        profile=None
        if index == 1
        else Profile(
            tool="torch.profiler",
            seconds=1e-3,
            digest_text="Time a call  1 ms\n" * 20,
            hot_spots=tuple(HotSpot(name=f"aten::add_{n}", calls=1, seconds=1e-4, share=0.1) for n in range(10)),
            roofline=Roofline(peaks=peaks, memory_seconds=2e-4, compute_seconds=1e-4),
            timeline=tuple(Span(name=f"kernel_{n % 7}", start=n * 1e-5, seconds=1e-5) for n in range(SPANS)),
        ),
        recommendation=None
        if index == 1
        else Recommendation(
            bottleneck="memory", action=f"fuse {index}", rationale="r" * 200, evidence="e" * 100, expected_gain="10 %"
        ),
        candidate=program,
        evaluation=evaluation(problem, program, verdict, chance),
        seconds=12.0,
        elapsed=12.0 * (index + 1),
        usage=Usage(requests=2, input_tokens=9000, output_tokens=2500, cost_usd=0.05),
    )


class Writer:
    """Writes runs and a suite of them, as `kforge forge` and `kforge suite` do."""

    def __init__(self, root: Path, attempts: int) -> None:
        self.root = root
        self.attempts = attempts
        self.key = settings.load().signing_key
        self.options = new_options(platform=PLATFORM, model=MODEL, iterations=attempts, replications=2).model_dump()

    def run(self, root: Path, problem: Problem) -> None:
        chance = random.Random(problem.name)  # noqa: S311 - the same store every time
        spec = TensorSpec(shape=(64, 1024), dtype="float32")
        workload = Workload(inputs=(spec,), outputs=(spec,), parameters=(), flops=65536, bytes_moved=524288)
        header = Header.new(
            problem=problem, workload=workload, platform=PLATFORM, model=MODEL, analyst=MODEL,
            options={**self.options, "platform_dirs": ""},
        )  # fmt: skip
        run = RunFolder.create(root, header, self.key)
        with run.writing():
            for index in range(self.attempts):
                run.commit(attempt_of(problem, index, chance))
            best = run.best()
            assert best is not None
            assert best.evaluation is not None
            run.finish(
                Outcome(
                    stopped=f"{self.attempts} iterations done",
                    best=best.index,
                    replication=Replication(evaluations=(best.evaluation, best.evaluation)),
                    usage=Usage(requests=2 * self.attempts, input_tokens=90000, output_tokens=25000, cost_usd=0.5),
                    seconds=12.0 * self.attempts,
                )
            )

    def suite(self, problems: list[Problem]) -> None:
        tasks = tuple(Task(name=each.name, family=each.name.partition("/")[0], problem=each) for each in problems)
        header = SuiteHeader.new(suite="scale", workload="", tasks=tasks, options=dict(self.options), platform_dirs=())
        folder = SuiteFolder.create(self.root, header, self.key)
        folder.hold_to(self.key)
        for task, problem in zip(tasks, problems, strict=True):
            folder.place(task).mkdir(parents=True)
            self.run(folder.place(task), problem)
            result_of(folder, task)  # as a worker of `kforge suite` does when a problem ends; it keeps the result


def problem(number: int) -> Problem:
    lines = "".join(f"    # line {line} of problem {number}\n" for line in range(60))
    return Problem(name=f"family_{number % 10}/problem_{number}", source=f"class Model:\n{lines}    pass\n")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--problems", type=int, default=500, help="runs, and problems of the suite")
    arguments.add_argument("--attempts", type=int, default=10, help="attempts of each")
    arguments.add_argument("--only", default="", help="only these commands, separated by commas")
    chosen = arguments.parse_args()
    root: Path = chosen.folder / "runs"
    os.environ["XDG_STATE_HOME"] = str(chosen.folder / "state")
    if not suite_paths(root):
        begin = time.monotonic()
        writer = Writer(root, chosen.attempts)
        problems = [problem(number) for number in range(chosen.problems)]
        for each in problems:
            writer.run(root, each)
        writer.suite(problems)
        print(f"written in {time.monotonic() - begin:.0f} s")
    suite, run = suite_paths(root)[-1], run_paths(root)[-1]
    page = chosen.folder / "report.html"
    commands = {
        "runs": ["runs", "-o", str(root)],
        "show": ["show", str(suite)],
        "show run": ["show", str(run)],
        "resume": ["resume", str(suite)],
        "report": ["report", str(suite), "-o", str(page)],
    }
    wanted = [name for name in chosen.only.split(",") if name] or list(commands)
    print("| command | status | first | again | processor time | memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in wanted:
        first, again = (measure(commands[name], dict(os.environ)) for _ in range(2))
        most = max(first.bytes, again.bytes)
        over = " (too much)" if again.seconds > MOST_SECONDS or most > MOST_BYTES else ""
        took = f"{first.seconds:.2f} s | {again.seconds:.2f} s | {again.processor:.2f} s"
        print(f"| {name} | {again.status} | {took} | {most / 2**20:.0f} MB{over} |", flush=True)


if __name__ == "__main__":
    main()

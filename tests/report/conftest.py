"""Run folders and suites of real records, with every state, a profile, prompts, and names that are hostile."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from kforge.models import Exchange
from kforge.models.conversation import Message, Reply, Request
from kforge.problems import Task
from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    CompilationFailure,
    Correct,
    Evaluation,
    GenerationFailure,
    HeadToHead,
    HotSpot,
    Interval,
    Mismatch,
    Outcome,
    Peaks,
    Problem,
    Profile,
    Receipt,
    Recommendation,
    Replication,
    Roofline,
    TensorSpec,
    Timing,
    Usage,
    Verdict,
    Workload,
)
from kforge.store import Breakdown, Header, Key, RunFolder, SuiteFolder, SuiteHeader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOSTILE = "</script><img src=x onerror=alert(1)> \u202egnp.exe {{ 7*7 }}"
"""Ends a script, is an image with code, turns the text around, and is a template."""
PROBLEM = "class Model:\n    '''Adds one.'''\n"
OPTIONS = {"platform": "null", "model": "scripted:replies", "iterations": 5, "precision": "strict"}
USAGE = Usage(requests=1, input_tokens=1200, output_tokens=300, cost_usd=0.01)


def interval(median: float, width: float = 0.03) -> Interval:
    return Interval(median=median, low=median * (1 - width), high=median * (1 + width))


def correct(speedup: float, over_compile: float, seconds: float = 1e-3, doubt: str | None = None) -> Correct:
    comparisons = tuple(
        Comparison(baseline=name, identity="torch", seconds=seconds * times, speedup=interval(times), doubt=doubt)  # type: ignore[arg-type]
        for name, times in (("eager", speedup), ("compile", over_compile))
    )
    timing = Timing(seconds=interval(seconds), comparisons=comparisons, pairs=40)
    return Correct(max_error=1e-7, tolerance=1e-5, cases=20, timing=timing)


def evaluation(program: Candidate, verdict: Verdict, problem: Problem, seed: int = 0) -> Evaluation:
    drawn = random.Random(seed)
    pace = {"candidate": 1e-3, "eager": 2e-3}
    samples = {name: tuple(drawn.gauss(mean, mean / 50) for _ in range(40)) for name, mean in pace.items()}
    receipt = Receipt(
        problem=problem.digest, candidate=program.digest, platform="null", precision="strict", seed="5ec2e7",
        device="host", versions={"torch": "2"}, sandbox="none", timer="monotonic",
        samples=samples if isinstance(verdict, Correct) else {}, stages={"build": 1.5, "timing": 2.0},
    )  # fmt: skip
    return Evaluation(verdict=verdict, receipt=receipt, labels=("sanitized",))


def attempts_of(problem: Problem, number: int, said: str = "") -> list[Attempt]:
    """The attempts of a problem. `number` decides how they go, and `said` is in every text of theirs."""
    peaks = Peaks(device="host", bytes_per_second=6e10, flops_per_second=7e10)
    speedup = (0.92, 1.4, 2.3, 0.8, 5.1)[number % 5]
    verdicts: list[Verdict] = [GenerationFailure(reason=f"no code {said}")]
    verdicts += [CompilationFailure(reason=f"g++ failed {said}", log=f"kernel.cpp:3:9: error: {said}")] * (number % 3)
    verdicts += [Mismatch(kind="numerical", reason=f"off by one {said}", max_error=0.5, tolerance=1e-5)]
    if number % 7 != 6:
        verdicts += [correct(speedup, speedup * 0.8), correct(speedup * 1.1, speedup * 0.9)]
    attempts = list[Attempt]()
    for index, verdict in enumerate(verdicts):
        facts: dict[str, Any] = {
            "index": index, "usage": USAGE, "seconds": 4.0, "elapsed": 4.0 * (index + 1),
            "phase": "optimization" if index and isinstance(verdicts[index - 1], Correct) else "functional",
        }  # fmt: skip
        if index:
            facts["parent"] = index - 1
        if isinstance(verdict, GenerationFailure):
            attempts.append(Attempt(failure=verdict, **facts))
            continue
        program = Candidate(source=_program(index, said), platform="null")
        if facts["phase"] == "optimization":
            facts["profile"] = Profile(
                tool="torch.profiler", seconds=1e-3, digest_text=f"Time a call  1 ms\n{said}",
                hot_spots=(HotSpot(name=f"aten::add {said}", calls=1, seconds=9e-4, share=0.9),),
                roofline=Roofline(peaks=peaks, memory_seconds=2e-4, compute_seconds=5e-5 * (number % 4)),
            )  # fmt: skip
            facts["recommendation"] = Recommendation(
                bottleneck=f"memory {said}", action="fuse", rationale="r", evidence="e", expected_gain="2x"
            )
            facts |= {"rival": index - 1, "head_to_head": HeadToHead(finding="faster", speedup=interval(1.1), pairs=9)}
        attempts.append(Attempt(candidate=program, evaluation=evaluation(program, verdict, problem, index), **facts))
    return attempts


def _program(index: int, said: str) -> str:
    body = f"class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + {index}\n"
    return f"import torch  # {said}\n\n\n{body}"


def fill(
    root: Path, problem: Problem, number: int, key: Key | None, said: str = "", *, finish: bool = True
) -> RunFolder:
    """Write the run of one problem."""
    spec = TensorSpec(shape=(4, 8), dtype="float32")
    header = Header.new(
        problem=problem, workload=Workload(inputs=(spec,), outputs=(spec,), parameters=(), flops=64, bytes_moved=256),
        platform="null", model="scripted:replies", analyst="scripted:replies", options=dict(OPTIONS),
    )  # fmt: skip
    run = RunFolder.create(root, header, key)
    attempts = attempts_of(problem, number, said)
    exchange = Exchange(run.exchange)
    for attempt in attempts:
        message = Message(role="user", text=f"Write a program. {said}", fingerprint=f"Write {attempt.index}")
        request = Request(
            agent="generation", model="scripted:replies", messages=(message,), max_tokens=9, step=attempt.index
        )
        exchange.write_reply(request, Reply(text=f"Here it is. {said}", usage=USAGE, model="m", finish="stop"))
    with run.writing():
        for attempt in attempts:
            run.commit(attempt)
        if finish:
            best = run.best()
            again = None
            if best is not None and best.candidate is not None and best.evaluation is not None:
                again = Replication(evaluations=(best.evaluation, best.evaluation))
            run.finish(
                Outcome(
                    stopped=f"5 iterations done {said}",
                    best=best.index if best else None,
                    replication=again,
                    usage=USAGE,
                    seconds=4.0 * len(attempts),
                )
            )
    return run


def make_suite(root: Path, names: Sequence[str], key: Key, said: str = "") -> SuiteFolder:
    """Write a suite of problems with these names. The last one is not finished, and the one before it is broken."""
    tasks = tuple(
        Task(name=name, family=name.rpartition("/")[0], problem=Problem(name=name, source=f"{PROBLEM}# {name}\n"))
        for name in names
    )
    suite = SuiteFolder.create(
        root, SuiteHeader.new(suite="made", workload="small", tasks=tasks, options=dict(OPTIONS), platform_dirs=()), key
    )
    for number, task in enumerate(tasks):
        assert task.problem is not None
        if number == len(tasks) - 2:
            suite.put_breakdown(task, Breakdown(kind="evaluator", reason=f"the referee died {said}"))
        else:
            fill(suite.place(task), task.problem, number, key, said, finish=number < len(tasks) - 1)
    return suite


@pytest.fixture(scope="session")
def signing_key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    return Key(tmp_path_factory.mktemp("state") / "signing.key")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, signing_key: Key) -> SuiteFolder:
    """A suite of nine problems in every state. The first one's name and texts are hostile."""
    root = tmp_path_factory.mktemp("runs")
    names = [f"odd/{HOSTILE}", *(f"family_{number % 2}/problem_{number}" for number in range(8))]
    return make_suite(root, names, signing_key, said=HOSTILE)

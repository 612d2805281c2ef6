"""Real records for run folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    GenerationFailure,
    Interval,
    Mismatch,
    Outcome,
    Problem,
    Receipt,
    TensorSpec,
    Timing,
    Usage,
    Workload,
)
from kforge.store import Header

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def make_header(name: str = "softmax scale") -> Header:
    spec = TensorSpec(shape=(4, 8), dtype="float32")
    return Header.new(
        problem=Problem(name=name, source="class Model: ...\r\n# é\n"),
        workload=Workload(inputs=(spec,), outputs=(spec,), parameters=(), flops=0, bytes_moved=256),
        platform="null",
        model="scripted:replies",
        analyst="scripted:advice",
        options={"iterations": 5, "target_speedup": 2.0, "precision": "strict", "unsafe": False},
    )


def make_attempt(index: int, speedup: float | None = None, *, failed: bool = False) -> Attempt:
    """An attempt that is correct with this speedup, or a mismatch, or (`failed`) without a program."""
    usage = Usage(requests=1, input_tokens=10, output_tokens=20)
    if failed:
        return Attempt(index=index, phase="functional", failure=GenerationFailure(reason="no code"), usage=usage)
    candidate = Candidate(source=f"# candidate {index}\r\nclass ModelNew: ...\n", platform="null")
    verdict: Correct | Mismatch = Mismatch(kind="numerical", reason="off", max_error=0.5, tolerance=1e-5)
    if speedup is not None:
        interval = Interval(median=speedup, low=speedup * 0.99, high=speedup * 1.01)
        comparison = Comparison(baseline="eager", identity="torch", seconds=1e-3, speedup=interval)
        timing = Timing(seconds=Interval(median=1e-3, low=9e-4, high=2e-3), comparisons=(comparison,), pairs=100)
        verdict = Correct(max_error=1e-7, tolerance=1e-5, cases=20, timing=timing)
    receipt = Receipt(
        problem="p", candidate=candidate.digest, platform="null", precision="strict", seed="00", device="host",
        versions={"torch": "2"}, sandbox="none", timer="monotonic", samples={"candidate": (1e-3, 2e-3)},
    )  # fmt: skip
    evaluation = Evaluation(verdict=verdict, receipt=receipt)
    return Attempt(index=index, phase="functional", candidate=candidate, evaluation=evaluation, usage=usage)


@pytest.fixture
def header() -> Callable[..., Header]:
    return make_header


@pytest.fixture
def attempt() -> Callable[..., Attempt]:
    return make_attempt


@pytest.fixture
def outcome() -> Callable[..., Outcome]:
    def make(best: int | None, stopped: str = "5 iterations done", **more: Any) -> Outcome:
        return Outcome(stopped=stopped, best=best, usage=Usage(requests=3), seconds=1.5, **more)

    return make


@pytest.fixture
def tree() -> Callable[[Path], dict[str, Any]]:
    """The files of a folder with their content, less the lock and what a kill may leave behind."""

    def read(folder: Path) -> dict[str, Any]:
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        kept = (path for path in files if path.name != "lock" and path.suffix != ".tmp")
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in kept}

    return read

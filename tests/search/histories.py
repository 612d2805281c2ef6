"""Attempts of runs that never happened, for tests of strategies."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    CompilationFailure,
    Correct,
    Evaluation,
    GenerationFailure,
    HeadToHead,
    Interval,
    Mismatch,
    Receipt,
    Recommendation,
    Standing,
    Timing,
    best_attempt,
)
from kforge.search import Optimize, Strategy, Write, strategy

FAILURES: dict[str, Any] = {
    "compilation_failure": CompilationFailure(reason="error: expected ';'"),
    "mismatch": Mismatch(kind="numerical", reason="off", max_error=0.5, tolerance=1e-5),
}
LINEAR = strategy("linear")


def idea(action: str) -> Recommendation:
    return Recommendation(bottleneck="b", action=action, rationale="r", evidence="e", expected_gain="2x")


def correct(speedup: float) -> Correct:
    interval = Interval(median=speedup, low=speedup * 0.9, high=speedup * 1.1)
    eager = Comparison(baseline="eager", identity="torch", seconds=1.0, speedup=interval)
    return Correct(
        max_error=0.0, tolerance=1e-5, cases=20, timing=Timing(seconds=interval, comparisons=(eager,), pairs=20)
    )


def grow(
    attempts: list[Attempt], outcome: str | float, program: str, strategy: Strategy = LINEAR, others: int = 0
) -> list[Attempt]:
    """The attempts after one more iteration with this outcome: a state that failed, or a speedup.

    `others`: how many further ideas the analysis agent gives where it is asked.
    """
    index = len(attempts)
    move = strategy.next_moves(attempts)[0]
    fields: dict[str, Any] = {
        "index": index,
        "phase": "optimization" if isinstance(move, Optimize) else "functional",
        "parent": None if isinstance(move, Write) else move.parent.index,
    }
    if isinstance(move, Optimize):
        asks = move.idea is None and move.advised_by is None
        fields["recommendation"] = move.idea or idea(
            f"{move.advised_by if move.advised_by is not None else index}.{move.rank}"
        )
        fields["others"] = tuple(idea(f"{index}.{rank}") for rank in range(1, others + 1)) if asks else ()
    if outcome == "generation_failure":
        return [*attempts, Attempt(**fields, failure=GenerationFailure(reason="no code"))]
    verdict = FAILURES[outcome] if isinstance(outcome, str) else correct(outcome)
    candidate = Candidate(source=program, platform="null")
    receipt = Receipt(
        problem="p", candidate=candidate.digest, platform="null", precision="strict", seed="0", device="d",
        versions={}, sandbox="s", timer="t",
    )  # fmt: skip
    evaluation = Evaluation(verdict=verdict, receipt=receipt)
    attempt = Attempt(**fields, candidate=candidate, evaluation=evaluation)
    return [*attempts, timed_against_the_best(attempts, attempt)]


def timed_against_the_best(attempts: list[Attempt], attempt: Attempt) -> Attempt:
    """The attempt with its finding, where it is correct and has a rival: by the medians, which are exact here."""
    best = best_attempt(attempts)
    if best is None or best.speedup is None or attempt.speedup is None:
        return attempt
    ratio = attempt.speedup.median / best.speedup.median
    finding: Standing = "faster" if ratio > 1.02 else "slower" if ratio < 1 / 1.02 else "undecided"
    speedup = Interval(median=ratio, low=ratio, high=ratio)
    return attempt.model_copy(
        update={"rival": best.index, "head_to_head": HeadToHead(finding=finding, speedup=speedup)}
    )


def history(*outcomes: str | float, by: Strategy = LINEAR, others: int = 0) -> list[Attempt]:
    attempts: list[Attempt] = []
    for outcome in outcomes:
        attempts = grow(attempts, outcome, f"# {len(attempts)}", by, others)
    return attempts


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["generation_failure", *FAILURES]) | st.floats(0.01, 100.0),
        st.sampled_from(["# one", "# two", "# three"]),
    ),
    max_size=12,
)


@st.composite
def histories(draw: st.DrawFn, by: Strategy = LINEAR) -> list[Attempt]:
    attempts: list[Attempt] = []
    others = draw(st.integers(0, 2))
    for outcome, program in draw(STEPS):
        attempts = grow(attempts, outcome, program, by, others)
    return attempts

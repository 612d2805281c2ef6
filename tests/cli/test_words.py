"""How a result reads: one leading figure, over which baseline, how sure, and whether it is proven."""

from __future__ import annotations

import pytest

from kforge import phrases
from kforge.cli.output import words
from kforge.cli.output.lines import wrapped
from kforge.records import (
    Attempt,
    Candidate,
    Comparison,
    Correct,
    Evaluation,
    Interval,
    Outcome,
    Receipt,
    Replication,
    Timing,
    Usage,
)
from kforge.store import RunSummary
from kforge.suite import ProblemResult

BUSY = "other processes used 60 % of the machine during timing"


def compared(low: float, high: float, *, baseline: str = "eager", doubt: str | None = None) -> Comparison:
    speedup = Interval(median=(low + high) / 2, low=low, high=high)
    return Comparison(baseline=baseline, identity="torch", seconds=1.0, speedup=speedup, doubt=doubt)


def evaluated(*comparisons: Comparison) -> Evaluation:
    timing = Timing(seconds=Interval(median=0.002, low=0.002, high=0.002), comparisons=comparisons, pairs=20)
    receipt = Receipt(
        problem="p", candidate="c", platform="null", precision="strict", seed="0", device="d", versions={},
        sandbox="s", timer="t",
    )  # fmt: skip
    return Evaluation(verdict=Correct(max_error=1e-7, tolerance=1e-5, cases=20, timing=timing), receipt=receipt)


def told(chosen: Evaluation, *repeated: Evaluation) -> list[str]:
    """What is said of a finished run whose best attempt was chosen by one evaluation and repeated by others."""
    candidate = Candidate(source="", platform="null")
    attempt = Attempt(index=3, phase="functional", candidate=candidate, evaluation=chosen)
    replication = Replication(evaluations=repeated) if repeated else None
    outcome = Outcome(stopped="done", best=3, replication=replication, usage=Usage(), seconds=1.0)
    reported = chosen.with_timing_of(replication).correct
    assert reported is not None
    return list(words.best(attempt, reported, outcome))


def test_the_repetitions_lead_and_the_choosing_evaluation_is_a_detail() -> None:
    again = evaluated(compared(1.3, 1.44), compared(0.98, 1.12, baseline="compile"))
    assert told(evaluated(compared(0.9, 2.36)), again, again, again) == [
        "best: attempt 3, faster than eager",
        "  1.37x over eager (95 % interval 1.33 to 1.41): faster",
        "  1.05x over torch.compile (95 % interval 0.98 to 1.12): cannot tell if faster",
        "  2 ms a call",
        "  from 3 further evaluations by fresh processes; lowest 1.37x",
        "  when it was chosen: 1.63x (0.90 to 2.36) over eager, cannot tell",
    ]


def test_a_repetition_that_was_disturbed_is_left_out_and_said() -> None:
    disturbed = evaluated(compared(0.4, 0.6, doubt=BUSY))
    lines = told(evaluated(compared(1.3, 1.44)), evaluated(compared(1.3, 1.44)), disturbed)
    assert lines[1] == "  1.37x over eager (95 % interval 1.30 to 1.44): faster"
    assert lines[3] == ("  from 1 of 2 further evaluations by fresh processes; the others are in doubt, and left out")


@pytest.mark.parametrize(
    ("low", "high", "doubt", "headline", "figure"),
    [
        (1.3, 1.5, None, "best: attempt 3, faster than eager", "1.40x over eager (95 % interval 1.30 to 1.50): faster"),
        (
            0.97, 1.05, None,
            "best: attempt 3, correct; cannot tell whether it is faster than eager",
            "1.01x over eager (95 % interval 0.97 to 1.05): cannot tell if faster",
        ),
        (
            0.78, 0.82, None,
            "no faster program found: the best correct one, attempt 3, is slower than eager",
            "0.80x over eager (95 % interval 0.78 to 0.82): slower",
        ),
        (
            1.2, 1.42, BUSY,
            "best: attempt 3, correct; its speedup was not measured",
            f"speedup over eager not measured: {BUSY}; 1.31x seen",
        ),
    ],
)  # fmt: skip
def test_each_finding_has_its_headline(low: float, high: float, doubt: str | None, headline: str, figure: str) -> None:
    pace = "2 ms a call" if doubt is None else "2 ms a call seen"
    assert told(evaluated(compared(low, high, doubt=doubt))) == [
        headline, f"  {figure}", f"  {pace}", "  from the one evaluation by which it was chosen",
    ]  # fmt: skip


def test_a_doubt_that_is_no_disturbance_is_not_called_one() -> None:
    """Cause: `not measured (disturbed; 1.31x seen)` where calls one by one left the speedup open."""
    doubt = "calls whose inputs come one by one are at 1.02x (0.93 to 1.10), those of a block at 1.31x"
    comparison = compared(1.2, 1.42, doubt=doubt)
    candidate = Candidate(source="", platform="null")
    attempt = Attempt(index=0, phase="functional", candidate=candidate, evaluation=evaluated(comparison))
    said = [
        phrases.brief(comparison), phrases.attempt_detail(attempt), words.line(attempt),
        words.summary(run(speedup=comparison.speedup, finding="cannot tell", doubt=doubt)),
    ]  # fmt: skip
    assert all("in doubt; 1.31x" in each for each in said)
    assert not any("disturbed" in each for each in said)


def test_a_doubt_about_all_measurements_is_said_once() -> None:
    both = [compared(1.2, 1.42, doubt=BUSY), compared(1.4, 1.6, baseline="compile", doubt=BUSY)]
    assert list(phrases.figures(both)) == [
        f"speedup not measured: {BUSY}; seen: 1.31x over eager, 1.50x over torch.compile"
    ]
    other = both[1].model_copy(update={"doubt": None})
    assert list(phrases.figures([both[0], other])) == [phrases.figure(both[0]), phrases.figure(other)]


def test_what_is_said_of_an_attempt_has_its_baseline_or_stands_below_a_heading_with_it() -> None:
    candidate = Candidate(source="", platform="null")
    attempt = Attempt(index=0, phase="functional", candidate=candidate, evaluation=evaluated(compared(0.97, 1.05)))
    assert words.attempt_detail(attempt) == "1.01x (0.97 to 1.05), cannot tell"
    assert words.line(attempt) == "0 functional: correct: 1.01x (0.97 to 1.05) over eager, cannot tell, 2 ms a call"
    unchanged = attempt.model_copy(update={"unchanged": "it cannot be traced"})
    assert words.line(unchanged) == "0 functional: no kernel: it cannot be traced"


def test_lines_of_a_whole_comparison_fit_eighty_columns() -> None:
    longest, undecided = compared(10.97, 11.05, baseline="compile"), compared(0.97, 1.05, baseline="compile")
    assert all(len(f"  {phrases.figure(each)}") <= 80 for each in (longest, undecided))


def run(**more: object) -> RunSummary:
    return RunSummary.model_validate(
        {
            "id": "r",
            "created": "2026-11-15T12:00:00+00:00",
            "problem": "p",
            "platform": "null",
            "model": "m",
            "status": "finished",
            "attempts": 1,
        }
        | more
    )


def test_a_run_in_a_few_words() -> None:
    speedup = Interval(median=1.37, low=1.3, high=1.45)
    assert words.summary(run(speedup=speedup, finding="faster")) == "1.37x (1.30 to 1.45) over eager, faster"
    busy = run(speedup=speedup, finding="cannot tell", doubt=BUSY)
    assert words.summary(busy) == "speedup not measured (in doubt; 1.37x over eager seen)"
    assert words.summary(run(no_kernel="it cannot be traced")) == "no kernel found"
    assert words.summary(run()) == "nothing correct"
    assert words.summary(run(status="interrupted")) == "nothing correct yet"


def test_a_problem_of_a_suite_that_was_not_measured_or_has_no_kernel() -> None:
    busy = ProblemResult(
        name="a", family="", state="correct", comparisons=(compared(1.2, 1.42, doubt=BUSY),), seconds=200
    )
    assert words.result(busy) == "a: correct, not measured over eager (in doubt; 1.31x seen), 3 min 20 s"
    assert list(words.result_lines(busy)) == [
        "a: correct, 3 min 20 s", f"  speedup over eager not measured: {BUSY}; 1.31x seen",
    ]  # fmt: skip
    unchanged = ProblemResult(name="a", family="", state="no_kernel", reason="it cannot be traced", seconds=4)
    assert words.result(unchanged) == "a: no kernel, it cannot be traced, 4 s"
    assert list(words.result_lines(unchanged)) == ["a: no kernel: it cannot be traced, 4 s"]


def test_time_is_the_clocks_and_says_how_much_of_it_is_new() -> None:
    outcome = Outcome(stopped="2 iterations done", usage=Usage(), seconds=44.6, session_seconds=44.6)
    assert words.ended(outcome) == "stopped: 2 iterations done; 45 s"
    resumed = outcome.model_copy(update={"seconds": 4000.0, "usage": Usage(requests=2, input_tokens=5)})
    assert words.ended(resumed) == (
        "stopped: 2 iterations done; 2 model calls, 5 tokens, price unknown; "
        "1 h 6 min in all, 45 s since it was resumed"
    )
    old = Outcome(stopped="2 iterations done", usage=Usage(), seconds=44.6)
    assert words.ended(old) == "stopped: 2 iterations done; 45 s"


def test_a_line_is_broken_between_words_where_it_can_be() -> None:
    line = f"  speedup over eager not measured: {BUSY}; 1.31x seen"
    pieces = wrapped(line, 80).splitlines()
    assert [len(piece) <= 80 for piece in pieces] == [True] * 2
    assert pieces[0].startswith("  speedup")
    assert pieces[1].startswith("    | ")
    assert " ".join(piece.removeprefix("    | ") for piece in pieces) == line
    assert wrapped("", 80) == ""
    assert wrapped("x" * 80, 80) == "x" * 80


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (Usage(), "free"),
        (Usage(requests=2), "price unknown"),
        (Usage(requests=2, cost_usd=0.0), "$0.0000"),
        (Usage(requests=2, cost_usd=0.00004), "under $0.0001"),
        (Usage(requests=2, cost_usd=0.25), "$0.2500"),
        (Usage(requests=1, cost_usd=0.25) + Usage(requests=2), "$0.2500 and 2 calls of unknown price"),
    ],
)
def test_a_price_that_is_not_known_is_said_and_never_zero(usage: Usage, said: str) -> None:
    assert words.price(usage) == said

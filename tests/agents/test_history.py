"""What agents are told of earlier attempts."""

from __future__ import annotations

import pytest

from kforge.agents import GenerationAgent, history
from kforge.agents.unasked import Unasked, as_text, question
from kforge.records import (
    Attempt,
    Candidate,
    CompilationFailure,
    Correct,
    Evaluation,
    GenerationFailure,
    HeadToHead,
    Interval,
    Mismatch,
    Receipt,
)

RECEIPT = Receipt(
    problem="p",
    candidate="c",
    platform="null",
    precision="strict",
    seed="s",
    device="d",
    versions={},
    sandbox="",
    timer="",
)


@pytest.fixture
def attempt(correct):
    """Makes an attempt, correct unless another verdict is given; its program has its index."""

    def made(index, verdict=None, *, source=None, **fields):
        phase = "optimization" if "recommendation" in fields else "functional"
        if isinstance(verdict, GenerationFailure):
            return Attempt(index=index, phase=phase, failure=verdict, **fields)
        candidate = Candidate(source=source or f"a = 1\nb = {index}\nclass ModelNew: ...\n", platform="null")
        evaluation = Evaluation(verdict=verdict or correct, receipt=RECEIPT)
        return Attempt(index=index, phase=phase, candidate=candidate, evaluation=evaluation, **fields)

    return made


SLOWER = HeadToHead(finding="slower", speedup=Interval(median=0.91, low=0.88, high=0.94))
UNDECIDED = HeadToHead(finding="undecided", speedup=Interval(median=1.01, low=0.97, high=1.05), reason="busy machine")
WRONG = Mismatch(kind="numerical", reason="512 elements differ", case="zeros")


def test_every_attempt_is_a_line(attempt, recommendation):
    attempts = [
        attempt(0, WRONG),
        attempt(1, parent=0),
        attempt(2, parent=1, recommendation=recommendation, rival=1, head_to_head=SLOWER),
        attempt(3, CompilationFailure(reason="kernel.cpp:3: error"), parent=1, recommendation=recommendation),
        attempt(4, GenerationFailure(reason="the answer is empty"), parent=3),
    ]
    assert history.lines(attempts) == [
        "attempt 0: first program: mismatch in the case zeros (all zeros, such as rows without a norm): "
        "512 elements differ",
        "attempt 1: repair of attempt 0: correct, 2 µs a call; 1.50x (1.40 to 1.60) over eager",
        "attempt 2: fuse the passes (from attempt 1): correct, 2 µs a call; 1.50x (1.40 to 1.60) over eager; "
        "against attempt 1: slower (0.91x (0.88 to 0.94))",
        "attempt 3: fuse the passes (from attempt 1): compilation failure: kernel.cpp:3: error",
        "attempt 4: repair of attempt 3: generation failure: the answer is empty",
    ]


def test_a_losing_rewrite_is_shown_as_its_changes_and_an_undecided_one_is_not(attempt, recommendation):
    best = attempt(0)
    lost = attempt(1, parent=0, recommendation=recommendation, rival=0, head_to_head=SLOWER)
    open_ = attempt(2, parent=0, recommendation=recommendation, rival=0, head_to_head=UNDECIDED)
    (shown,) = history.differences([best, lost, open_], best.candidate)
    assert "attempt 1, slower (0.91x (0.88 to 0.94)):" in shown
    assert "-b = 0\n+b = 1" in shown
    assert "a = 2" not in shown
    assert history.differences([best, lost], Candidate(source="another program", platform="null")) == []


def test_a_losing_rewrite_is_told_with_what_its_profile_shows(attempt, recommendation):
    why = ("aten::copy_: not there before, 1.2 ms now",)
    lost = attempt(1, parent=0, recommendation=recommendation, rival=0, head_to_head=SLOWER, why_slower=why)
    (shown,) = history.differences([attempt(0), lost], attempt(0).candidate)
    assert shown.splitlines()[:4] == [
        "attempt 1, slower (0.91x (0.88 to 0.94)):",
        "by their profiles:",
        "- aten::copy_: not there before, 1.2 ms now",
        "changes:",
    ]


def test_a_repair_of_a_rewrite_keeps_the_recommendation_and_the_best_program(
    attempt, recommendation, platform, problem, workload
):
    attempts = [
        attempt(0),
        attempt(1, WRONG, parent=0, recommendation=recommendation),
        attempt(2, CompilationFailure(reason="error"), parent=1),
    ]
    agent = GenerationAgent(Unasked(), platform).at(3, attempts)
    last = attempts[2]
    text = as_text(question(lambda: agent.repair(problem, workload, last.candidate, last.verdict)))
    assert "# The recommendation that your last program follows" in text
    assert "- action: fuse the passes" in text
    assert attempts[0].candidate.source.strip() in text
    assert last.candidate.source.strip() in text
    assert "attempt 1: fuse the passes (from attempt 0): mismatch" in text


def test_a_repair_of_a_first_program_has_no_recommendation(attempt, platform, problem, workload):
    attempts = [attempt(0, WRONG)]
    agent = GenerationAgent(Unasked(), platform).at(1, attempts)
    text = as_text(question(lambda: agent.repair(problem, workload, attempts[0].candidate, WRONG)))
    assert "recommendation that your last program follows" not in text
    assert "# The last correct program" not in text
    assert "Case: zeros (all zeros, such as rows without a norm)" in text


def test_the_next_prompt_says_what_was_unusual_about_the_last_answer(attempt, platform, problem, workload):
    first = attempt(0, WRONG, remarks=("the answer holds 2 different programs, and the last one was taken",))
    agent = GenerationAgent(Unasked(), platform).at(1, [first])
    text = as_text(question(lambda: agent.repair(problem, workload, first.candidate, WRONG)))
    assert "About your last answer: the answer holds 2 different programs, and the last one was taken." in text


def test_a_speedup_in_doubt_is_told_as_that(correct):
    doubtful = correct.timing.comparisons[0].model_copy(update={"doubt": "other processes used 90% of the machine"})
    timing = correct.timing.model_copy(update={"comparisons": (doubtful,)})
    said = history.standing(correct.model_copy(update={"timing": timing}))
    assert said == [
        "It takes 2 µs a call.",
        "Speedup over eager: 1.50 (95 % interval 1.40 to 1.60; eager takes 3 µs). "
        "It is in doubt: other processes used 90% of the machine.",
    ]


def test_an_untimed_program_has_no_figures():
    assert history.standing(Correct(max_error=0.0, tolerance=0.0, cases=1, untimed="emulated")) == []

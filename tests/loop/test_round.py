"""Rounds of several attempts: in which order models are asked, what is shared, and that a killed run goes on alike."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from tests.loop.scripts import PROGRAM, drive, scripted, workshop

from kforge.errors import WaitingForReplies
from kforge.loop import RunLimits, forge
from kforge.loop.questions import Questions
from kforge.models import Exchange
from kforge.records import HeadToHead, Interval
from kforge.search import strategy

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.evaluation import Judge
    from kforge.records import Attempt
    from kforge.store import RunFolder

LIMITS = RunLimits(6, replications=0, roofline_share=9)
WRONG = PROGRAM.format("3 * x")


def program(name: int) -> str:
    return PROGRAM.format(f"2 * x  # {name}")


def advice(*actions: str) -> str:
    ideas = [
        {"bottleneck": "b", "action": action, "rationale": "r", "evidence": "e", "expected_gain": "2x"}
        for action in actions
    ]
    return json.dumps(ideas[0] if len(ideas) == 1 else ideas)


def shape(attempts: list[Attempt]) -> list[tuple[int | None, str, str | None]]:
    """What must not depend on when a run was killed."""
    return [
        (each.parent, each.verdict.state, each.recommendation.action if each.recommendation else None)
        for each in attempts
    ]


def known(run: RunFolder, index: int, rival: int, ratio: float) -> None:
    """Decide a head-to-head before it is held, so that no test depends on measured times."""
    finding = "faster" if ratio > 1.02 else "slower"
    speedup = Interval(median=ratio, low=ratio, high=ratio)
    run.put_stage(index, f"against_{rival}", HeadToHead.model_validate({"finding": finding, "speedup": speedup}))


ANSWERS = [WRONG, program(1), program(2), advice("fuse"), program(3), WRONG, program(4)]
"""Three first programs, one recommendation, and three rewrites along it."""
EXPECTED = [
    (None, "mismatch", None),
    (None, "correct", None),
    (None, "correct", None),
    (2, "correct", "fuse"),
    (2, "mismatch", "fuse"),
    (2, "correct", "fuse"),
]


def carry_on(run: RunFolder, judge: Judge, model: str, most: int) -> None:
    """Make at most `most` attempts and stop, as a session that is killed after them."""
    loop = forge(run, workshop(run, judge, model, search=strategy("best-of:3")), LIMITS)
    with run.writing():
        for _ in range(most):
            index = len(run.attempts())
            for rival, ratio in {2: [(1, 2.0)], 3: [(2, 2.0)], 5: [(3, 0.5)]}.get(index, []):
                known(run, index, rival, ratio)
            if next(loop, None) is None:
                return
        loop.close()


def test_a_round_shares_one_recommendation_also_when_it_was_killed(
    judge: Judge, run: RunFolder, tmp_path: Path
) -> None:
    model = scripted(tmp_path, *ANSWERS)
    for most in (1, 3, 9):
        carry_on(run, judge, model, most)
    attempts = run.attempts()
    assert shape(list(attempts)) == EXPECTED
    assert [len(each.requests) for each in attempts] == [1, 1, 1, 2, 1, 1], "one sibling asked for all"
    outcome = run.outcome()
    assert outcome is not None
    assert (outcome.best, outcome.usage.requests) == (3, 7)
    assert [each.request.agent for each in Exchange(run.exchange).questions()].index("analysis") == 3


def test_all_questions_of_a_round_are_written_before_it_waits(judge: Judge, run: RunFolder) -> None:
    work = workshop(run, judge, "exchange", search=strategy("beam:3"))
    with pytest.raises(WaitingForReplies) as waiting:
        drive(run, work, RunLimits(3, replications=0))
    assert waiting.value.pending == ("001-generation", "002-generation", "003-generation")
    (run.exchange / "001-generation.reply.md").write_text(WRONG)
    (run.exchange / "003-generation.reply.md").write_text(" ")
    with pytest.raises(WaitingForReplies) as waiting:
        drive(run, work, RunLimits(3, replications=0))
    assert waiting.value.pending == ("002-generation", "003-generation")
    assert waiting.value.empty == ("003-generation",)
    assert len(run.attempts()) == 1, "what was answered is evaluated"


def test_a_round_asks_no_more_than_the_iterations_allow(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    work = workshop(run, judge, scripted(tmp_path, *[WRONG] * 5), search=strategy("best-of:3"))
    attempts, outcome = drive(run, work, RunLimits(4, replications=0))
    assert len(attempts) == outcome.usage.requests == 4


def test_each_program_is_profiled_once(judge: Judge, run: RunFolder, tmp_path: Path) -> None:
    answers = [program(1), program(2), advice("one"), WRONG, advice("two"), WRONG]
    work = workshop(run, judge, scripted(tmp_path, *answers), search=strategy("beam:2"))
    loop = forge(run, work, RunLimits(4, replications=0, roofline_share=9))
    with run.writing():
        next(loop)
        known(run, 1, 0, 2.0)
        attempts = list(loop)
    assert [each.parent for each in attempts] == [None, 1, 0]
    assert sorted(path.parent.name for path in run.path.glob("attempts/*/profile.json")) == ["000", "001"]


def test_a_slower_rewrite_is_profiled_and_compared_where_an_agent_reads_it(
    judge: Judge, run: RunFolder, tmp_path: Path
) -> None:
    slow = PROGRAM.format("sum((0 * x).cumsum(0) for _ in range(50)) + 2 * x")
    answers = [program(1), advice("one"), slow, advice("two"), WRONG]
    work = workshop(run, judge, scripted(tmp_path, *answers))
    loop = forge(run, work, RunLimits(3, replications=0, roofline_share=9))
    with run.writing():
        next(loop)
        known(run, 1, 0, 0.5)
        attempts = list(loop)
    assert any("aten::cumsum: not there before" in line for line in attempts[0].why_slower), attempts[0]
    (asked,) = [each for each in Exchange(run.exchange).questions() if each.name == "004-analysis"]
    assert "aten::cumsum: not there before" in str(asked.request)


# --- ideas ----------------------------------------------------------------------------------------------------

NOTHING = json.dumps({"nothing_left": "it is at the roof", "evidence": "98 %"})


def test_further_ideas_are_followed_before_the_analysis_agent_is_asked_again(
    judge: Judge, run: RunFolder, tmp_path: Path
) -> None:
    answers = [program(1), advice("fuse", "tile"), WRONG, WRONG, WRONG, program(2), NOTHING]
    loop = forge(
        run, workshop(run, judge, scripted(tmp_path, *answers)), RunLimits(9, replications=0, roofline_share=9)
    )
    with run.writing():
        attempts = [next(loop) for _ in range(4)]
        known(run, 4, 0, 0.5)
        attempts.append(next(loop))
        with pytest.raises(StopIteration) as end:
            next(loop)
    assert shape(attempts) == [
        (None, "correct", None),
        (0, "mismatch", "fuse"),
        (1, "mismatch", None),
        (2, "mismatch", None),
        (0, "correct", "tile"),
    ]
    assert [each.action for each in attempts[1].others] == ["tile"]
    outcome = end.value.value
    assert outcome.stopped.startswith("the performance analysis agent has nothing left worth trying: it is at the roof")
    assert (outcome.best, outcome.usage.requests) == (0, 7), "the last answer was paid as well"


def test_a_beam_goes_on_with_the_other_program_where_one_has_nothing_left(
    judge: Judge, run: RunFolder, tmp_path: Path
) -> None:
    answers = [program(1), program(2), NOTHING, advice("fuse"), WRONG, WRONG]
    work = workshop(run, judge, scripted(tmp_path, *answers), search=strategy("beam:2"))
    limits = RunLimits(4, replications=0, roofline_share=9)
    with run.writing():
        loop = forge(run, work, limits)
        next(loop)
        known(run, 1, 0, 2.0)
        next(loop)
        assert next(loop).exhausted == (1,)
        loop.close()
        attempts = list(forge(run, work, limits))
    assert [each.parent for each in run.attempts()] == [None, None, 0, 0]
    assert [len(each.requests) for each in run.attempts()] == [1, 1, 3, 1]
    assert attempts[0].recommendation == run.attempts()[2].recommendation, "also after a kill"


# --- calls at once --------------------------------------------------------------------------------------------


def test_questions_are_in_flight_at_the_same_time() -> None:
    together = threading.Barrier(3)
    questions = Questions(3)
    answers = [questions.ask(together.wait) for _ in range(3)]
    assert sorted(answer() for answer in answers) == [0, 1, 2]


def test_a_question_that_waits_for_another_takes_no_place() -> None:
    questions, begun = Questions(2), threading.Event()

    def first() -> str:
        begun.wait(10)
        return "advice"

    advised = questions.ask(first)
    followers = [questions.ask(lambda: "program", after=advised) for _ in range(3)]
    free = questions.ask(lambda: "another")
    assert free() == "another"
    begun.set()
    assert [each() for each in followers] == ["program"] * 3


def test_an_error_is_raised_where_the_answer_is_needed() -> None:
    questions = Questions(2)

    def fail() -> str:
        raise LookupError("no answer")

    failed = questions.ask(fail)
    follower = questions.ask(lambda: "program", after=failed)
    questions.finish()
    for each in (failed, follower, failed):
        with pytest.raises(LookupError, match="no answer"):
            each()


def test_one_at_a_time_is_asked_when_it_is_needed_and_once() -> None:
    asked = list[str]()
    questions = Questions(1)
    second, first = questions.ask(lambda: asked.append("second")), questions.ask(lambda: asked.append("first"))
    assert asked == []
    first()
    second()
    first()
    assert asked == ["first", "second"]

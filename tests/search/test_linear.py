"""The paper's strategy: what it does after given attempts, and what holds after any attempts whatsoever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from tests.search.histories import FAILURES, LINEAR, grow, histories, history, idea

from kforge.records import Attempt, best_attempt
from kforge.search import Optimize, Repair, Write
from kforge.search.history import REPAIRS_OF_A_REWRITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kforge.search import Move


def next_move(attempts: Sequence[Attempt]) -> Move:
    (move,) = LINEAR.next_moves(attempts)
    return move


# --- after given attempts ---------------------------------------------------------------------------------


def test_the_first_program_is_written() -> None:
    assert next_move([]) == Write()


@pytest.mark.parametrize("state", ["generation_failure", *FAILURES])
def test_a_program_that_is_not_correct_is_repaired(state: str) -> None:
    attempts = history(state)
    assert next_move(attempts) == Repair(attempts[0], repeats=0)


def test_repairs_before_anything_is_correct_have_no_end() -> None:
    attempts = history(*["mismatch"] * 9)
    assert next_move(attempts) == Repair(attempts[-1], repeats=0)


def test_what_is_correct_is_optimized() -> None:
    attempts = history("mismatch", 0.5)
    assert next_move(attempts) == Optimize(attempts[1], tried=())


def test_a_rewrite_that_wins_is_improved_further() -> None:
    attempts = history(1.0, 2.0)
    assert next_move(attempts) == Optimize(attempts[1], tried=())


def test_a_rewrite_that_loses_is_left_behind_and_remembered() -> None:
    attempts = history(2.0, 1.0)
    move = next_move(attempts)
    assert isinstance(move, Optimize)
    assert move.parent == attempts[0]
    (tried,) = move.tried
    assert tried.recommendation == attempts[1].recommendation
    assert tried.outcome == "the rewrite was correct and slower (0.50x (0.50 to 0.50))"


def test_an_undecided_rewrite_is_not_told_as_slower() -> None:
    attempts = history(2.0, 2.01)
    move = next_move(attempts)
    assert isinstance(move, Optimize)
    assert move.parent == attempts[0]
    (tried,) = move.tried
    assert "undecided" in tried.outcome
    assert not {"slower", "lost"} & set(tried.outcome.split())


def test_a_broken_rewrite_is_repaired_twice_and_then_left_behind() -> None:
    attempts = history(2.0, "mismatch")
    assert next_move(attempts) == Repair(attempts[1], repeats=0)
    attempts = history(2.0, "mismatch", "compilation_failure")
    assert next_move(attempts) == Repair(attempts[2], repeats=0)
    attempts = history(2.0, "mismatch", "compilation_failure", "mismatch")
    move = next_move(attempts)
    assert isinstance(move, Optimize)
    assert move.parent == attempts[0]
    assert [tried.outcome for tried in move.tried] == ["the rewrite failed (mismatch)"]


def test_only_an_idea_whose_program_was_correct_and_slower_is_given_up() -> None:
    outcomes = (2.0, 1.0, 2.01, "mismatch", "mismatch", "mismatch")
    move = next_move(history(*outcomes))
    assert isinstance(move, Optimize)
    assert [tried.given_up for tried in move.tried] == [True, False, False]


def test_ideas_that_wait_are_followed_in_order_before_the_analysis_agent_is_asked_again() -> None:
    attempts = history(2.0, 1.0, others=2)
    assert [each.action for each in attempts[1].others] == ["1.1", "1.2"]
    followed = []
    for _ in range(3):
        move = next_move(attempts)
        assert isinstance(move, Optimize)
        followed.append(move.idea)
        attempts = grow(attempts, 1.0, "# slow", others=2)
    assert followed == [idea("1.1"), idea("1.2"), None]


def test_ideas_for_a_program_that_was_replaced_are_told_and_not_followed() -> None:
    attempts = history(1.0, 2.0, others=2)
    assert next_move(attempts) == Optimize(attempts[1], tried=(), untried=attempts[1].others)


def test_where_nothing_is_left_for_the_best_there_is_no_move() -> None:
    attempts = history(1.0, 2.0)
    assert LINEAR.next_moves(attempts, {0}) == LINEAR.next_moves(attempts)
    assert LINEAR.next_moves(attempts, {1}) == ()


def test_a_repaired_rewrite_counts_as_what_was_recommended() -> None:
    move = next_move(history(2.0, "mismatch", 1.0))
    assert isinstance(move, Optimize)
    assert [tried.outcome for tried in move.tried] == ["the rewrite was correct and slower (0.50x (0.50 to 0.50))"]


def test_what_was_tried_on_another_program_is_not_held_against_this_one() -> None:
    attempts = history(1.0, 0.5, 3.0)
    assert next_move(attempts) == Optimize(attempts[2], tried=())


def test_the_same_failure_of_the_same_program_is_counted() -> None:
    attempts: list[Attempt] = []
    for program in ("# a", "# b", "# a", "# a"):
        attempts = grow(attempts, "mismatch", program)
    assert next_move(attempts) == Repair(attempts[-1], repeats=2)
    attempts = grow(attempts, "compilation_failure", "# a")
    assert next_move(attempts) == Repair(attempts[-1], repeats=0)


def test_answers_without_a_program_are_the_same_failure() -> None:
    attempts = history("generation_failure", "mismatch", "generation_failure")
    assert next_move(attempts) == Repair(attempts[-1], repeats=1)


# --- after any attempts -----------------------------------------------------------------------------------


@given(histories())
def test_the_move_follows_from_the_attempts_alone(attempts: list[Attempt]) -> None:
    read_again = [Attempt.from_json(attempt.to_json()) for attempt in attempts]
    assert next_move(attempts) == next_move(read_again) == next_move(tuple(attempts))


@given(histories())
def test_nothing_is_optimized_before_something_is_correct(attempts: list[Attempt]) -> None:
    move, best = next_move(attempts), best_attempt(attempts)
    assert isinstance(move, Write) == (not attempts)
    if best is None:
        assert not isinstance(move, Optimize)


@given(histories())
def test_only_the_best_is_optimized_and_only_the_last_failure_repaired(attempts: list[Attempt]) -> None:
    move = next_move(attempts)
    if isinstance(move, Optimize):
        assert move.parent == best_attempt(attempts)
    elif isinstance(move, Repair):
        assert move.parent == attempts[-1]
        assert move.parent.speedup is None


@given(histories())
def test_a_rewrite_gets_only_so_many_repairs(attempts: list[Attempt]) -> None:
    repairs = 0
    for index, attempt in enumerate(attempts):
        repairs = repairs + 1 if best_attempt(attempts[:index]) and attempt.phase == "functional" else 0
        assert repairs <= REPAIRS_OF_A_REWRITE


@given(histories())
def test_every_recommendation_for_a_program_is_remembered_with_it(attempts: list[Attempt]) -> None:
    move = next_move(attempts)
    if isinstance(move, Optimize):
        grown = [a for a in attempts if a.phase == "optimization" and a.parent == move.parent.index]
        assert len(move.tried) == len(grown)


@given(histories())
def test_repeats_never_outnumber_the_failures_before(attempts: list[Attempt]) -> None:
    move = next_move(attempts)
    if isinstance(move, Repair):
        same = [a for a in attempts if a.verdict.state == move.parent.verdict.state]
        assert 0 <= move.repeats < len(same)


def test_the_original_module_unchanged_is_improved_and_not_repaired() -> None:
    unchanged = [grow([], 1.3, "the module")[0].model_copy(update={"unchanged": "no kernel language"})]
    assert next_move(unchanged) == Optimize(unchanged[0], ())
    again = [*unchanged, grow(unchanged, 1.3, "the module")[1].model_copy(update={"unchanged": "the same"})]
    move = next_move(again)
    assert isinstance(move, Optimize)
    assert (move.parent, [each.outcome for each in move.tried]) == (
        unchanged[0],
        ["the rewrite was the original module, unchanged"],
    )
    slower = grow(again, 0.8, "a program")
    assert best_attempt(slower) == slower[-1]
    assert next_move(slower) == Optimize(slower[-1], ())

"""Strategies that grow more than one program: their rounds, what they keep, and that a killed run goes on alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.search.histories import STEPS, grow, histories, history, idea

from kforge.records import Attempt, best_attempt
from kforge.search import Optimize, Repair, Strategy, Write, strategy
from kforge.search.history import ranked, ratings

if TYPE_CHECKING:
    from kforge.search import Move

NAMES = ["linear", "best-of:3", "beam:3", "tree"]


def parents(moves: tuple[Move, ...]) -> list[int]:
    return [move.parent.index for move in moves if not isinstance(move, Write)]


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "best-of", "best-of:", "beam:0", "beam:17", "best-of:x", "tree:2", "beam:²"])
def test_a_bad_name_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ValueError, match=r"choose linear, best-of:N|must be between 1 and 16") as refused:
        strategy(name)
    assert len(str(refused.value).splitlines()) == 1


# --- what holds for every strategy --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_the_rest_of_a_round_does_not_depend_on_its_results(name: str, data: st.DataObject) -> None:
    by = strategy(name)
    attempts = data.draw(histories(by))
    moves = by.next_moves(attempts)
    assert moves
    for position, (outcome, program) in enumerate(data.draw(STEPS)[: len(moves) - 1], 1):
        attempts = grow(attempts, outcome, program, by)
        assert by.next_moves([Attempt.from_json(each.to_json()) for each in attempts]) == moves[position:]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_only_correct_programs_are_improved_and_only_failures_repaired(name: str, data: st.DataObject) -> None:
    attempts = data.draw(histories(strategy(name)))
    for move in strategy(name).next_moves(attempts):
        if isinstance(move, Optimize):
            assert move.parent.is_correct
        elif isinstance(move, Repair):
            assert not move.parent.is_correct
        else:
            is_first_round = {each.parent for each in attempts} <= {None}
            assert is_first_round or best_attempt(attempts) is None


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_shared_advice_is_asked_for_by_an_attempt_of_the_same_program(name: str, data: st.DataObject) -> None:
    attempts = data.draw(histories(strategy(name)))
    moves = strategy(name).next_moves(attempts)
    for index, move in enumerate(moves, len(attempts)):
        if isinstance(move, Optimize) and move.advised_by is not None:
            assert move.advised_by < index
            asker = (
                attempts[move.advised_by].parent
                if move.advised_by < len(attempts)
                else parents(moves)[move.advised_by - len(attempts)]
            )
            assert asker == move.parent.index


# --- best of N ----------------------------------------------------------------------------------------------

BEST_OF = strategy("best-of:3")


def test_best_of_writes_several_programs_and_continues_the_best() -> None:
    assert BEST_OF.next_moves([]) == (Write(),) * 3
    attempts = history(1.0, 3.0, "mismatch", by=BEST_OF)
    moves = BEST_OF.next_moves(attempts)
    assert parents(moves) == [1, 1, 1]
    assert moves == (
        Optimize(attempts[1], ()),
        Optimize(attempts[1], (), advised_by=3, rank=1),
        Optimize(attempts[1], (), advised_by=3, rank=2),
    )


def test_best_of_repairs_what_came_furthest_where_a_whole_round_failed() -> None:
    attempts = history("compilation_failure", "mismatch", "mismatch", by=BEST_OF)
    assert BEST_OF.next_moves(attempts) == (Repair(attempts[1], 0),) * 3


def test_best_of_returns_to_the_best_after_two_rounds_of_repairs() -> None:
    attempts = history(1.0, 1.0, 1.0, *["mismatch"] * 9, by=BEST_OF)
    assert [each.parent for each in attempts[3:]] == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    assert parents(BEST_OF.next_moves(attempts)) == [0, 0, 0]


# --- beam ---------------------------------------------------------------------------------------------------

BEAM = strategy("beam:2")


def test_a_beam_improves_its_best_programs_side_by_side() -> None:
    attempts = history(1.0, 2.0, by=BEAM)
    assert parents(BEAM.next_moves(attempts)) == [1, 0]
    attempts = history(1.0, 2.0, 1.5, 4.0, by=BEAM)
    assert parents(BEAM.next_moves(attempts)) == [3, 1]


def test_a_beam_repairs_the_rewrite_of_a_program_that_stays_in_it() -> None:
    attempts = history(1.0, 2.0, "mismatch", 1.5, by=BEAM)
    assert BEAM.next_moves(attempts) == (Repair(attempts[2], 0), Optimize(attempts[3], ()))


def test_a_beam_repairs_all_first_programs_while_none_is_correct() -> None:
    attempts = history("mismatch", "compilation_failure", by=BEAM)
    assert BEAM.next_moves(attempts) == (Repair(attempts[0], 0), Repair(attempts[1], 0))


def test_a_beam_with_one_program_mends_the_other_first_programs_and_then_tries_more_ideas() -> None:
    attempts = history(1.0, "mismatch", by=BEAM)
    assert BEAM.next_moves(attempts) == (Optimize(attempts[0], ()), Repair(attempts[1], 0))
    attempts = history(1.0, "mismatch", "mismatch", "mismatch", "mismatch", "mismatch", by=BEAM)
    moves = BEAM.next_moves(attempts)
    assert parents(moves) == [4, 0], "the first program has had its repairs, the rewrite has one left"


# --- tree ---------------------------------------------------------------------------------------------------

TREE = strategy("tree")


def test_the_tree_grows_the_best_first() -> None:
    assert parents(TREE.next_moves(history(1.0, 2.0, by=TREE))) == [1]


def test_the_tree_returns_to_a_losing_branch_when_the_best_does_not_improve() -> None:
    attempts = history(1.0, 1.6, 1.5, 0.2, 0.2, 0.2, by=TREE)
    assert best_attempt(attempts) == attempts[1]
    grown = [each.parent for each in attempts]
    assert grown[:3] == [None, 0, 1]
    assert sorted(grown[3:]) == [1, 1, 2], "the program that is a little slower is grown beside the best"


def test_the_tree_grows_a_program_that_is_far_behind_last() -> None:
    attempts = history(4.0, 0.1, *[3.9] * 3, by=TREE)
    assert 1 not in [each.parent for each in attempts]


def test_the_tree_repairs_a_rewrite_twice_and_keeps_it_for_later() -> None:
    attempts = history(2.0, "mismatch", "mismatch", by=TREE)
    assert TREE.next_moves(attempts) == (Repair(attempts[2], 0),)
    attempts = history(2.0, "mismatch", "mismatch", "mismatch", by=TREE)
    (move,) = TREE.next_moves(attempts)
    assert isinstance(move, Optimize)
    assert move.parent == attempts[0]
    for _ in range(8):
        attempts = grow(attempts, 0.1, f"# {len(attempts)}", TREE)
    assert 3 in [each.parent for each in attempts[4:]], "no idea is lost by failed repairs"


def test_the_tree_writes_another_first_program_after_two_repairs() -> None:
    attempts = history("mismatch", "mismatch", "mismatch", by=TREE)
    assert TREE.next_moves(attempts) == (Repair(attempts[2], 0),)
    assert TREE.next_moves(history(*["mismatch"] * 4, by=TREE)) == (Write(),)


def test_a_program_with_nothing_left_is_not_improved_any_more() -> None:
    assert BEST_OF.next_moves(history(1.0, 2.0, 1.0, by=BEST_OF), {1}) == ()
    attempts = history(1.0, 2.0, by=BEAM)
    assert parents(BEAM.next_moves(attempts, {1})) == [0, 0]
    assert BEAM.next_moves(attempts, {0, 1}) == ()
    attempts = history(1.0, 2.0, "mismatch", by=TREE)
    assert parents(TREE.next_moves(attempts, {0, 1})) == [2], "a failed rewrite can still be mended"
    assert TREE.next_moves(history(1.0, 2.0, by=TREE), {0, 1}) == ()


# --- ratings ------------------------------------------------------------------------------------------------


@given(histories(TREE))
def test_ratings_follow_from_chains_of_direct_comparisons(attempts: list[Attempt]) -> None:
    rated = ratings(attempts)
    for attempt in attempts:
        if attempt.head_to_head is not None:
            assert attempt.rival is not None
            assert attempt.head_to_head.speedup is not None
            difference = rated[attempt.index] - rated[attempt.rival]
            assert (difference > 0) == (attempt.head_to_head.speedup.median > 1)


@given(histories(TREE))
def test_the_best_is_ranked_first_and_every_program_once(attempts: list[Attempt]) -> None:
    programs = ranked(attempts)
    assert programs[:1] == [best for best in [best_attempt(attempts)] if best is not None]
    assert len({each.candidate for each in programs}) == len(programs)


def test_an_idea_that_waits_is_used_by_every_strategy() -> None:
    for name in NAMES:
        by: Strategy = strategy(name)
        attempts = history(2.0, 2.0, 2.0, 0.5, 0.5, 0.5, by=by, others=2)
        moves = by.next_moves(attempts)
        ideas = [move.idea for move in moves if isinstance(move, Optimize) and move.idea is not None]
        assert all(each in [other for attempt in attempts for other in attempt.others] for each in ideas)
        assert idea("none") not in ideas

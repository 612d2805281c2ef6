"""An ensemble: one first program for each model, and the best correct one is grown."""

from __future__ import annotations

import pytest
from tests.search.histories import grow

from kforge.search import Optimize, Repair, Write, root, strategy
from kforge.search.ensemble import EnsembleSearch
from kforge.search.linear import LinearSearch

THREE = strategy("linear", 3)


def test_each_model_writes_and_the_best_correct_program_is_improved() -> None:
    attempts = []
    for count, outcome in enumerate((2.0, 3.0, "mismatch")):
        assert THREE.next_moves(attempts) == (Write(),) * (3 - count)
        attempts = grow(attempts, outcome, f"p{count}", THREE)
    (move,) = THREE.next_moves(attempts)
    assert isinstance(move, Optimize), "a failed first program is not repaired when another one is correct"
    assert move.parent.index == 1

    attempts = grow(attempts, "compilation_failure", "p3", THREE)
    (repair,) = THREE.next_moves(attempts)
    assert isinstance(repair, Repair)
    assert repair.parent.index == 3
    attempts = grow(attempts, 4.0, "p4", THREE)
    assert [root(attempts, each).index for each in attempts] == [0, 1, 2, 1, 1]


def test_without_a_correct_program_the_one_that_came_furthest_is_repaired() -> None:
    attempts = []
    for name, outcome in (("a", "compilation_failure"), ("b", "mismatch"), ("c", "compilation_failure")):
        attempts = grow(attempts, outcome, name, THREE)
    (move,) = THREE.next_moves(attempts)
    assert isinstance(move, Repair)
    assert move.parent.index == 1


def test_one_model_is_no_ensemble_and_wide_strategies_need_room_for_all() -> None:
    assert isinstance(strategy("linear", 1), LinearSearch)
    assert isinstance(strategy("tree", 2), EnsembleSearch)
    assert strategy("best-of:3", 3) == strategy("best-of:3")
    with pytest.raises(ValueError, match="best-of:2 writes fewer first programs than the 3 models of the ensemble"):
        strategy("best-of:2", 3)

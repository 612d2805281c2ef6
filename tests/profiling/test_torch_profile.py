"""Hot spots of real calls."""

from __future__ import annotations

import time

import pytest
import torch

from kforge.profiling.rows import OTHER, OUTSIDE
from kforge.profiling.torch_profile import ROUNDS, TOP, record


def test_operators_are_found_and_shares_add_up() -> None:
    matrix, vector = torch.randn(300, 300), torch.randn(300)

    def call() -> torch.Tensor:
        return torch.relu(matrix @ matrix) @ vector + vector + vector

    spots = record(call, calls=5)
    by_name = {spot.name: spot for spot in spots}
    assert by_name["aten::mm"].calls == 1
    assert by_name["aten::add"].calls == 2
    assert [spot.seconds for spot in spots] == sorted((spot.seconds for spot in spots), reverse=True)
    assert sum(spot.share for spot in spots) == pytest.approx(1)
    total = sum(spot.seconds for spot in spots)
    assert all(spot.share == pytest.approx(spot.seconds / total) for spot in spots)


def test_time_outside_of_torch_is_a_row_of_its_own() -> None:
    spots = record(lambda: time.sleep(0.01), calls=3)
    assert spots[0].name == OUTSIDE
    assert spots[0].share > 0.9
    assert spots[0].calls == 1
    assert spots[0].seconds >= 0.01


def test_the_tail_is_summed_up() -> None:
    x = torch.rand(1000) + 1
    operators = [torch.sin, torch.cos, torch.tan, torch.exp, torch.log, torch.sqrt, torch.rsqrt]
    operators += [torch.neg, torch.floor, torch.ceil, torch.round, torch.sign, torch.tanh, torch.erf]

    def call() -> None:
        for operator in operators:
            operator(x)

    spots = record(call, calls=2)
    assert len(spots) == TOP + 1
    other = next(spot for spot in spots if spot.name == OTHER)
    assert other.calls == len(operators) + 1 - TOP
    assert sum(spot.share for spot in spots) == pytest.approx(1)


def test_the_calls_are_those_asked_for_in_a_few_rounds_and_a_warm_up() -> None:
    made = []
    record(lambda: made.append(torch.ones(1)), calls=4)
    assert len(made) == 1 + ROUNDS * 4


def test_a_call_that_had_to_wait_does_not_tell_where_the_time_goes() -> None:
    """As on a busy machine, where one of many short calls waits for a core."""
    matrix, called = torch.randn(300, 300), 0

    def call() -> None:
        nonlocal called
        called += 1
        matrix @ matrix
        if called == 3:
            time.sleep(0.5)

    assert record(call, calls=4)[0].name == "aten::mm"


def test_misuse_and_failure_reach_the_caller() -> None:
    with pytest.raises(ValueError, match="calls must be positive"):
        record(lambda: None, calls=0)
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 / 0, calls=1)

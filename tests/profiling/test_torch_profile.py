"""Hot spots of real calls."""

from __future__ import annotations

import time

import pytest
import torch

from kforge.profiling.rows import OTHER, OUTSIDE
from kforge.profiling.torch_profile import ROUNDS, SPANS, TOP, record


def test_operators_are_found_and_shares_add_up() -> None:
    matrix, vector = torch.randn(300, 300), torch.randn(300)

    def call() -> torch.Tensor:
        return torch.relu(matrix @ matrix) @ vector + vector + vector

    spots, _ = record(call, calls=5)
    by_name = {spot.name: spot for spot in spots}
    assert by_name["aten::mm"].calls == 1
    assert by_name["aten::add"].calls == 2
    assert [spot.seconds for spot in spots] == sorted((spot.seconds for spot in spots), reverse=True)
    assert sum(spot.share for spot in spots) == pytest.approx(1)
    total = sum(spot.seconds for spot in spots)
    assert all(spot.share == pytest.approx(spot.seconds / total) for spot in spots)


def test_a_timeline_has_the_last_call_in_order_of_execution() -> None:
    matrix, bias = torch.randn(300, 300), torch.randn(300)

    def call() -> None:
        matrix @ matrix
        time.sleep(0.01)
        torch.nn.functional.linear(matrix, matrix, bias).exp()

    _, timeline = record(call, calls=3)
    named = [span.name for span in timeline if span.name != OUTSIDE]
    # named by the part that takes longest; that may be another one if the process had to wait for a core
    product, linear, exp = named
    assert product in ("aten::matmul", "aten::mm")
    assert linear in ("aten::linear", "aten::t", "aten::transpose", "aten::as_strided", "aten::addmm")
    assert exp == "aten::exp"
    assert max(timeline, key=lambda span: span.seconds).name == OUTSIDE
    ends = [span.start + span.seconds for span in timeline]
    assert timeline[0].start == 0
    assert all(end == pytest.approx(after.start) for end, after in zip(ends, timeline[1:], strict=False))


def test_a_long_timeline_keeps_the_longest_spans() -> None:
    large, small = torch.randn(1 << 18), torch.randn(4)

    def call() -> None:
        for number in range(2 * SPANS):
            torch.neg(large) if number == SPANS else torch.exp(small)

    _, timeline = record(call, calls=1)
    assert len(timeline) == SPANS
    assert "aten::neg" in {span.name for span in timeline}


def test_time_outside_of_torch_is_a_row_of_its_own() -> None:
    spots, _ = record(lambda: time.sleep(0.01), calls=3)
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

    spots, _ = record(call, calls=2)
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

    assert record(call, calls=4)[0][0].name == "aten::mm"


def test_misuse_and_failure_reach_the_caller() -> None:
    with pytest.raises(ValueError, match="calls must be positive"):
        record(lambda: None, calls=0)
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 / 0, calls=1)

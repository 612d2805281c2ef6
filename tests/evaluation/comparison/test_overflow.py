"""Which tensors of an output judge nobody, because torch or double precision leaves the number range there."""

import math

import pytest
import torch

from kforge.evaluation.comparison.comparison import Truth
from kforge.evaluation.comparison.overflow import (
    cannot_judge,
    clean_slices,
    overflows,
    slices_are_right,
    spared,
    unjudged,
    where_finite,
)
from kforge.problems.tensors import same

BEYOND = Truth(torch.tensor([1e40], dtype=torch.float64), torch.tensor([math.inf]))


def test_overflow_of_torch_itself_is_seen() -> None:
    assert overflows(Truth(torch.tensor([1e40], dtype=torch.float64), torch.tensor([float("inf")])), "strict")
    endless = torch.tensor([float("inf")])
    assert not overflows(Truth(endless.double(), endless), "strict")


@pytest.mark.parametrize("value", [7e4, -7e4])
def test_what_half_precision_cannot_hold_judges_nobody_who_declared_it(value: float) -> None:
    one, far = torch.ones(4), torch.tensor([1.0, value, float("inf"), float("nan")])
    assert overflows(Truth(one.double(), one, [far]), "half")
    assert overflows(Truth(far.double(), far), "half")
    assert not overflows(Truth(one.double(), one, [far]), "strict")
    assert not overflows(Truth(one.double(), one, [torch.tensor([6e4, float("inf")])]), "half")


@pytest.mark.parametrize(
    ("exact", "own"), [(math.inf, math.nan), (math.nan, math.inf), (math.inf, -math.inf), (math.inf, 3.0)]
)
def test_a_truth_that_is_finite_infinite_or_nan_unlike_torchs_overflows(exact: float, own: float) -> None:
    assert overflows(Truth(torch.tensor([1.0, exact], dtype=torch.float64), torch.tensor([1.0, own])), "strict")


def test_beside_a_tensor_that_overflows_the_others_judge() -> None:
    fine, index = torch.ones(3), torch.tensor([1, 2])
    truth = Truth([BEYOND.exact, fine.double(), index], [BEYOND.own, fine, index])
    assert unjudged(truth, "strict") == [True, False, False]
    assert unjudged(Truth([fine.double()], [fine]), "strict") == [False]


def test_beside_a_tensor_that_overflows_those_that_torch_is_far_off_in_judge_nobody() -> None:
    fine, zero = torch.ones(3), torch.zeros(3)
    truth = Truth(
        [BEYOND.exact, fine.double(), torch.tensor([3])],
        [BEYOND.own, zero, torch.tensor([0])],
    )
    assert unjudged(truth, "strict") == [True, True, True]


def test_inputs_that_half_precision_cannot_hold_free_every_tensor() -> None:
    fine = torch.ones(3)
    assert unjudged(Truth([fine.double(), fine.double()], [fine, fine], [torch.tensor([7e4])]), "half") == [True, True]


def test_only_what_overflows_is_spared() -> None:
    fine = torch.ones(3)
    truth = Truth({"a": BEYOND.exact, "b": fine.double()}, {"a": BEYOND.own, "b": fine})
    rest = spared(truth, {"b": fine * 2, "a": torch.tensor([5.0])}, "strict")
    assert torch.equal(rest["b"], fine * 2)
    assert rest["a"].tolist() == [math.inf]


@pytest.mark.parametrize("wrong", [torch.ones(2), torch.ones(1, dtype=torch.float64), None])
def test_what_has_not_the_right_form_is_not_spared(wrong: object) -> None:
    fine = torch.ones(3)
    rest = spared(Truth([BEYOND.exact, fine.double()], [BEYOND.own, fine]), [wrong, fine], "strict")
    assert rest[0] is wrong


def stacked(dim: int) -> Truth:
    """A softmax beside a power that overflows in some places."""
    x = 300 * torch.randn(64, 32, generator=torch.Generator().manual_seed(3))
    results = [torch.cat([each.softmax(-1), each**20], dim) for each in (x.double(), x)]
    return Truth(*results)


@pytest.mark.parametrize("dim", [0, 1])
def test_slices_without_overflow_judge_beside_those_with(dim: int) -> None:
    truth = stacked(dim)
    assert unjudged(truth, "strict") == [True]
    assert not cannot_judge(truth, "strict")
    assert slices_are_right(truth, truth.own, "strict")
    softmax, power = truth.own.chunk(2, dim)
    for wrong in (softmax * math.nan, softmax * 0, softmax.flip(1 - dim)):
        assert not slices_are_right(truth, torch.cat([wrong, power], dim), "strict")
    assert slices_are_right(truth, torch.cat([softmax, power * math.nan], dim), "strict")
    few = softmax.clone()
    few.view(-1)[7] += 1
    assert slices_are_right(truth, torch.cat([few, power], dim), "strict")


def test_slices_judge_nobody_where_numbers_come_near_to_an_overflow_or_torch_is_off() -> None:
    assert cannot_judge(BEYOND, "strict")
    exact = torch.tensor([[1e40, 1.0], [1e30, 1.0], [1.0, 1.0]], dtype=torch.float64)
    own = exact.float()
    assert [each.tolist() for each, _ in clean_slices(Truth(exact, own), own, "strict")] == [[[1.0], [1.0], [1.0]]]
    own[:, 1] = 2.0
    assert not slices_are_right(Truth(exact, exact.float()), own, "strict")
    assert cannot_judge(Truth(exact, own.clone().index_fill_(0, torch.tensor([2]), 3.0)), "strict")


def test_only_what_neither_has_a_number_for_is_taken_from_torch() -> None:
    endless, own = math.inf, torch.tensor([1.0, math.inf, math.nan, math.inf, 5.0])
    truth = Truth(torch.tensor([1.0, endless, endless, 7.0, endless], dtype=torch.float64), own)
    output = torch.tensor([2.0, 88.0, 99.0, 3.0, 4.0])
    assert str(where_finite(truth, output)) == str(torch.tensor([2.0, math.inf, math.nan, 3.0, 4.0]))
    assert where_finite(truth, "no tensor") == "no tensor"


def test_numbers_that_must_stay_are_kept_where_nothing_is_finite() -> None:
    truth = Truth(torch.tensor([math.nan, math.nan, 1.0]).double(), torch.tensor([math.nan, math.nan, 1.0]))
    output = torch.tensor([5.0, 6.0, 1.0])
    assert same(where_finite(truth, output), truth.own)
    kept = [torch.tensor([False, True, False])]
    assert same(where_finite(truth, output, kept), torch.tensor([math.nan, 6.0, 1.0]))

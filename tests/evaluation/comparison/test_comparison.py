"""The comparison: every element counts, NaN is no wildcard, and a small number is not zero."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from kforge.evaluation.comparison.comparison import Agreement, Truth, compare, in_range, ordered_like, surely_alike
from kforge.evaluation.constants import FLOORS
from kforge.records import Mismatch


def truth_of(own: object) -> Truth:
    return Truth(own.double() if isinstance(own, torch.Tensor) and own.is_floating_point() else own, own)


def judge(own: object, got: object, precision: str = "strict") -> Agreement | Mismatch:
    found = compare(truth_of(own), got, precision, "case")
    leaves = pytree.tree_leaves(own)
    if leaves and all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        assert repr(found) == repr(compare(left_out(own), got, precision, "case")), "whenever torch's own is computed"
    return found


def left_out(own: object) -> Truth:
    """Torch's own result is computed when it is needed."""
    form = pytree.tree_map(lambda leaf: torch.empty_like(leaf, device="meta"), own)
    return Truth(truth_of(own).exact, form=form, compute=lambda: own)


def kind(found: Agreement | Mismatch) -> str:
    return found.kind if isinstance(found, Mismatch) else "agrees"


def test_torchs_own_result_is_not_computed_for_what_is_near_the_truth() -> None:
    own = torch.randn(64, 64)
    near, far = left_out(own), left_out(own)
    assert kind(compare(near, own * (1 + 1e-7), "strict", "case")) == "agrees"
    assert not near.is_whole
    assert kind(compare(far, own * 1.1, "strict", "case")) == "numerical"
    assert far.is_whole


def test_all_zeros_for_a_wide_softmax_fail() -> None:
    own = torch.softmax(torch.randn(2, 393_216), dim=-1)
    assert own.max() < 1e-3
    assert kind(judge(own, torch.zeros_like(own))) == "numerical"


def test_half_precision_fails_under_strict_and_passes_under_half() -> None:
    own = torch.randn(64, 64)
    rounded = own.half().float()
    assert kind(judge(own, rounded)) == "numerical"
    assert kind(judge(own, rounded, "half")) == "agrees"


def test_tf32_fails_under_strict_and_passes_under_tf32() -> None:
    own = torch.randn(64, 64)
    rounded = (own.view(torch.int32) & ~0x1FFF).view(torch.float32)
    assert kind(judge(own, rounded)) == "numerical"
    assert kind(judge(own, rounded, "tf32")) == "agrees"


@given(st.integers(0, 999), st.sampled_from([1.0, 1e-20, 1e20]))
def test_one_wrong_element_fails_at_any_scale(position: int, scale: float) -> None:
    own = torch.randn(1000, generator=torch.Generator().manual_seed(position)) * scale
    got = own.clone()
    got[position] += 0.01 * scale
    found = judge(own, got)
    assert isinstance(found, Mismatch)
    assert str([position]) in found.reason


@given(st.floats(0, 0.9))
def test_rounding_noise_within_the_floor_passes(share: float) -> None:
    own = torch.randn(500, generator=torch.Generator().manual_seed(0))
    got = own * (1 + share * FLOORS["strict"]["float32"])
    assert kind(judge(own, got)) == "agrees"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_values_pass_only_where_the_truth_has_them(bad: float) -> None:
    own = torch.randn(10)
    got = own.clone()
    got[3] = bad
    assert kind(judge(own, got)) == "numerical"
    assert kind(judge(got, got.clone())) == "agrees"
    assert kind(judge(got, own)) == "numerical"


@pytest.mark.parametrize("theirs", [math.nan, math.inf, 3.0])
def test_where_torch_and_fp64_differ_in_being_finite_either_is_right(theirs: float) -> None:
    truth = Truth(torch.tensor([1.0, math.inf], dtype=torch.float64), torch.tensor([1.0, theirs]))
    assert kind(compare(truth, torch.tensor([1.0, theirs]), "strict", "case")) == "agrees"
    assert kind(compare(truth, torch.tensor([1.0, math.inf]), "strict", "case")) == "agrees"
    assert kind(compare(truth, torch.tensor([1.0, -math.inf]), "strict", "case")) == "numerical"
    assert kind(compare(truth, torch.tensor([1.0, 4.0]), "strict", "case")) == "numerical"


def test_infinity_of_the_wrong_sign_fails() -> None:
    own = torch.tensor([1.0, float("inf")])
    assert kind(judge(own, torch.tensor([1.0, -float("inf")]))) == "numerical"


def test_an_all_zero_truth_wants_zeros() -> None:
    own = torch.zeros(8)
    assert kind(judge(own, own.clone())) == "agrees"
    assert kind(judge(own, own + 1e-3)) == "numerical"


@pytest.mark.parametrize(
    ("own", "got", "expected"),
    [
        (torch.ones(2, 3), torch.ones(3, 2), "shape"),
        (torch.ones(3), torch.ones(3, 1), "shape"),
        (torch.ones(3), torch.ones(3).double(), "dtype"),
        (torch.ones(3), torch.ones(3).half(), "dtype"),
        (torch.ones(3), None, "structure"),
        (torch.ones(3), [torch.ones(3)], "structure"),
        ((torch.ones(3),), [torch.ones(3)], "structure"),
        ([torch.ones(3)], [torch.ones(3), torch.ones(3)], "structure"),
        ({"a": torch.ones(3)}, {"b": torch.ones(3)}, "structure"),
        (None, torch.ones(3), "structure"),
        (3, 4, "numerical"),
        (3, 3.0, "structure"),
        (True, 1, "structure"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "numerical"),
        (torch.tensor([True]), torch.tensor([False]), "numerical"),
        (torch.empty(0, 3), torch.empty(3, 0), "shape"),
    ],
)
def test_differences_are_named(own: object, got: object, expected: str) -> None:
    assert kind(judge(own, got)) == expected


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4),
        torch.empty(0, 3),
        torch.tensor(2.5),
        torch.randn(3, dtype=torch.complex64),
        torch.arange(4),
        {"a": (torch.ones(2), [None, 3, "text", True, 2.5])},
    ],
)
def test_every_kind_of_output_agrees_with_itself(value: object) -> None:
    exact = value.to(torch.complex128) if isinstance(value, torch.Tensor) and value.is_complex() else value
    assert kind(compare(Truth(exact, value), value, "strict", "case")) == "agrees"


def test_an_index_may_follow_torchs_own_rounding() -> None:
    assert kind(compare(Truth(torch.tensor([5]), torch.tensor([6])), torch.tensor([6]), "strict", "case")) == "agrees"
    assert kind(compare(Truth(torch.tensor([5]), torch.tensor([6])), torch.tensor([5]), "strict", "case")) == "agrees"
    assert (
        kind(compare(Truth(torch.tensor([5]), torch.tensor([6])), torch.tensor([7]), "strict", "case")) == "numerical"
    )


def test_below_the_smallest_normal_number_nothing_is_judged() -> None:
    own = torch.full((8,), 1e-42)
    assert kind(judge(own, torch.full((8,), 1.2e-38))) == "agrees"
    assert kind(judge(own, torch.full((8,), 1e-30))) == "numerical"


SPECIAL = (0.0, -0.0, 1.0, 1e-30, 1e19, 3e38, float("inf"), float("-inf"), float("nan"))


@given(
    st.lists(st.sampled_from(SPECIAL) | st.floats(-1e3, 1e3, width=32), min_size=1, max_size=12),
    st.lists(st.floats(-1.5, 1.5), min_size=12, max_size=12),
    st.sampled_from([0.0, 1e-7, 1e-5, 1e-2, 1.0]),
)
def test_what_is_surely_alike_also_agrees(values: list[float], moves: list[float], size: float) -> None:
    one = torch.tensor(values)
    other = one + size * torch.tensor(moves[: len(values)])
    if surely_alike([one], [other], "strict"):
        assert kind(compare(Truth([one], [one]), [other], "strict", "case")) == "agrees"


def test_small_differences_are_surely_alike_and_other_shapes_are_not() -> None:
    one = torch.randn(1000)
    assert surely_alike((one, one.double()), (one * (1 + 1e-6), one.double()), "strict")
    assert not surely_alike((one,), (one * 1.001,), "strict")
    assert not surely_alike((one,), [one], "strict")
    assert not surely_alike((one,), (one.double(),), "strict")
    assert not surely_alike((one,), (one[:999],), "strict")
    assert not surely_alike((one,), (3.0,), "strict")
    assert surely_alike(torch.empty(0), torch.empty(0), "strict")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda own, _: own, "agrees"),
        (lambda own, _: own.masked_fill(torch.isinf(own), torch.nan), "agrees"),
        (lambda own, right: torch.where(torch.isinf(own), right, own), "agrees"),
        (lambda own, _: torch.ones_like(own), "numerical"),
        (lambda own, _: torch.where(torch.isinf(own), own, 0.0), "numerical"),
        (lambda own, _: torch.where(torch.isinf(own), 1.0, own), "numerical"),
    ],
)
@pytest.mark.parametrize("local", [False, True])
def test_where_torch_overflows_nothing_else_may_be_off(change: object, expected: str, local: bool) -> None:
    exact = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).double()
    own = exact.float().masked_fill(exact > 2.5, torch.inf)
    assert own.isinf().any()
    assert callable(change)
    found = compare(Truth(exact, own), change(own, exact.float()), "strict", "case", local=local)
    assert kind(found) == expected
    assert found.tolerance is not None
    assert found.tolerance < 1e-3


def test_keys_of_a_dict_are_compared_with_their_type_and_in_any_order() -> None:
    one, other = torch.randn(8), torch.randn(8)
    assert (
        kind(compare(Truth({0: one, 1: other}, {0: one, 1: other}), {1: other, 0: one}, "strict", "case")) == "agrees"
    )
    named = {"0": one, "1": other}
    assert kind(compare(Truth({0: one, 1: other}, {0: one, 1: other}), named, "strict", "case")) == "structure"
    assert list(ordered_like([{0: one, 1: other}], [{1: 2, 0: 3}])[0].items()) == [(0, 3), (1, 2)]


def test_numbers_whose_squares_are_none_hide_nothing() -> None:
    exact = torch.randn(64, 64, dtype=torch.float64).masked_fill(torch.rand(64, 64) < 0.5, 1e200)
    assert kind(compare(Truth(exact, exact), exact, "strict", "")) == "agrees"
    assert kind(compare(Truth(exact, exact), exact * 0, "strict", "")) == "numerical"
    off = exact.clone()
    off[0, 0] = -off[0, 0] if off[0, 0] > 1e100 else 1e200
    assert kind(compare(Truth(exact, exact), off, "strict", "")) == "numerical"


def test_the_smallest_number_of_a_dtype_is_that_of_the_dtype_it_runs_at() -> None:
    own = torch.randn(64, 64)
    exact = own.double()
    own[::2, 3], exact[::2, 3] = (torch.finfo(each.dtype).min for each in (own, exact))
    own[5, 5], exact[5, 5] = torch.inf, 1e60
    narrowed = in_range(exact, own)
    assert torch.equal(narrowed[::2, 3], own[::2, 3].double())
    assert narrowed[5, 5] == 1e60, "torch overflows there, and that says nothing"
    assert torch.equal(narrowed[1::2, :5], exact[1::2, :5])


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan")])
def test_nothing_finite_is_surely_like_a_number_that_is_not(odd: float) -> None:
    assert not surely_alike([torch.tensor([odd, 1.0])], [torch.tensor([0.0, 1.0])], "strict")

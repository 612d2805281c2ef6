"""Integers that a module treats unlike all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from kforge import problems
from kforge.problems.inputs.special_integers import (
    comparable,
    integers_of_buffers,
    larger_integers,
    special_integers,
    with_copied,
    with_larger,
    with_special,
)
from kforge.problems.instance import Instance, instantiate

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = nn.EmbeddingBag(500, 4, mode="sum", padding_idx=77)
        {more}

    def forward(self, x, which):
        return {body}

def get_inputs():
    return [torch.randn(64, 32), {integers}]

def get_init_inputs():
    return []
"""
LABELS = "torch.randint(0, 32, (64,))"


def instance_of(folder: Path, body: str, integers: str = LABELS, more: str = "self.rows = 90000") -> Instance:
    path = folder / "problem.py"
    path.write_text(SOURCE.format(body=body, integers=integers, more=more))
    return instantiate(problems.load(path))


def found(instance: Instance) -> list[int]:
    return special_integers(instance, instance.inputs(1), instance.structure).get(1, [])


def test_targets_that_do_not_count_are_found(tmp_path: Path) -> None:
    assert -100 in found(instance_of(tmp_path, "nn.functional.cross_entropy(x, which)"))
    assert 255 in found(instance_of(tmp_path, "nn.functional.cross_entropy(x, which, ignore_index=255)"))
    assert -7 in found(instance_of(tmp_path, "nn.functional.cross_entropy(x, which, ignore_index=-7)"))


def test_a_void_class_above_the_range_is_found(tmp_path: Path) -> None:
    loss = "nn.functional.cross_entropy(x, which, ignore_index={})"
    assert 32 in found(instance_of(tmp_path, loss.format("x.shape[1]")))  # one past the last class
    assert 40 in found(instance_of(tmp_path, loss.format("40")))
    assert 32 not in found(instance_of(tmp_path, loss.format("40")))
    assert 32 not in found(instance_of(tmp_path, "x + which[:, None]"))  # no integer is unlike its neighbours


def test_places_counted_from_the_end_are_not_special(tmp_path: Path) -> None:
    assert not [number for number in found(instance_of(tmp_path, "x.repeat(4, 4)[which]")) if number < 0]


def test_padding_within_the_range_is_found_by_the_attribute(tmp_path: Path) -> None:
    assert 77 in found(instance_of(tmp_path, "self.bags(which)", "torch.randint(0, 500, (64, 4))"))


@pytest.mark.parametrize(
    "more",
    ["self.words = [17, 90000]", "self.words = {17: 90000}", "self.register_buffer('words', torch.tensor([17]))"],
)
def test_integers_of_containers_and_buffers_are_special(tmp_path: Path, more: str) -> None:
    assert 17 in found(instance_of(tmp_path, "x", "torch.randint(0, 500, (64, 4))", more))


def test_a_length_of_zero_is_special_unless_it_becomes_an_index_below_zero(tmp_path: Path) -> None:
    lengths = "torch.randint(1, 33, (64,))"
    assert 0 in found(instance_of(tmp_path, "x * (torch.arange(32) < which[:, None])", lengths))
    assert 0 not in found(instance_of(tmp_path, "x[torch.arange(64), which - 1]", lengths))
    assert 0 not in found(instance_of(tmp_path, "x / which[:, None]", lengths))


def test_present_integers_of_the_state_are_used_and_few_of_many(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "x", "torch.randint(0, 1 << 40, (64, 40))")
    inputs, chance = instance.inputs(1), torch.Generator().manual_seed(1)
    _, fresh = with_special(inputs, chance, instance.structure, {1: [-100]}, current=[1 << 39, -5])
    assert bool((fresh == 1 << 39).any())
    assert not bool((fresh == -5).any())
    _, fresh = with_special(inputs, chance, instance.structure, {1: [-100, *range(10**9, 10**9 + 1000)]})
    assert bool((fresh == -100).any())
    assert len(set(fresh.flatten().tolist()) - set(inputs[1].flatten().tolist())) <= 32


COPYING = SOURCE.replace("forward(self, x, which)", "forward(self, x, which, other)")


def test_integers_are_copied_from_the_same_row_of_another_input(tmp_path: Path) -> None:
    path = tmp_path / "problem.py"
    integers = "torch.randint(0, 1 << 40, (64, 8)), torch.randint(0, 1 << 40, (64,))"
    path.write_text(COPYING.format(more="", body="x", integers=integers))
    instance = instantiate(problems.load(path))
    given = instance.inputs(1)
    assert comparable(instance.structure) == {1: [2], 2: [1]}
    _, which, other = with_copied(given, torch.Generator().manual_seed(1), instance.structure)
    assert bool((which == given[2][:, None]).any())
    assert bool((other[:, None] == given[1]).any())
    assert not bool((given[1] == given[2][:, None]).any())
    assert bool(((which == given[1]) | (which == given[2][:, None])).all())


def test_offsets_stay_as_they_are(tmp_path: Path) -> None:
    assert not found(instance_of(tmp_path, "x[which]", "torch.arange(64)"))


def test_a_quarter_of_the_elements_is_special_and_distinct_rows_stay_distinct(tmp_path: Path) -> None:
    many = instance_of(tmp_path, "x", "torch.randint(0, 32, (64, 40))")
    inputs = many.inputs(1)
    _, fresh = with_special(inputs, torch.Generator().manual_seed(1), many.structure, {1: [-100]})
    assert 0.15 < float((fresh == -100).float().mean()) < 0.35
    apart = instance_of(tmp_path, "x", "torch.stack([torch.randperm(100)[:8] for _ in range(64)])")
    inputs = apart.inputs(1)
    _, fresh = with_special(inputs, torch.Generator().manual_seed(1), apart.structure, {1: [3]})
    assert all(len(row.unique()) == 8 for row in fresh)
    assert bool((fresh == 3).any(1).all())


def test_integers_may_be_as_large_as_the_module_takes(tmp_path: Path) -> None:
    def limits(body: str, integers: str = LABELS) -> dict[int, tuple[int, int] | None]:
        instance = instance_of(tmp_path, body, integers)
        return larger_integers(instance, instance.inputs(1), instance.structure)

    few = limits("self.bags(which)", "torch.randint(0, 50, (64, 4))")
    assert few[1] is not None
    assert few[1][0] == 0
    assert few[1][1] == 499
    assert limits("self.bags(which)", "torch.randint(0, 500, (64, 400))") == {}  # all that it takes are given
    assert limits("x * which[:, None]") == {1: None}
    assert limits("torch.bincount(which)") == {1: None}
    assert limits("x[which]", "torch.arange(64)") == {}
    assert limits("self.bags(which)", "torch.randint(0, 50, (64, 4)).sort(1).values") == {1: (0, 499)}
    offsets = "torch.cat([torch.zeros(1), torch.rand(63).sort().values * 32]).long()"
    assert limits("self.bags(which)", offsets) == {}  # they begin with the same number


def test_larger_integers_are_drawn_from_the_whole_range(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "x", "torch.randint(3, 9, (64, 40))")
    inputs = instance.inputs(1)
    same, fresh = with_larger(inputs, torch.Generator().manual_seed(1), instance.structure, {1: (3, 1000)})
    assert same is inputs[0]
    assert int(fresh.min()) >= 3
    assert 900 < int(fresh.max()) <= 1000
    ordered = instance_of(tmp_path, "x", "torch.randint(3, 9, (64, 4)).sort(1).values")
    _, fresh = with_larger(ordered.inputs(1), torch.Generator().manual_seed(1), ordered.structure, {1: (3, 1000)})
    assert 900 < int(fresh.max()) <= 1000
    assert torch.equal(fresh, fresh.sort(1).values)


@pytest.mark.parametrize(
    ("integers", "expected"),
    [
        ("torch.randint(-60, 60, (64, 1), dtype=torch.int8)", (-128, 127)),
        ("torch.randint(-9, 60, (64, 1), dtype=torch.int16)", (-(2**15), 2**15 - 1)),
        ("torch.randint(0, 100, (64, 1), dtype=torch.uint8)", (0, 255)),
        ("torch.randint(-8, 8, (64, 1), dtype=torch.int8)", None),  # codes of four bits, which a program may pack
        ("torch.randint(0, 20, (64, 1), dtype=torch.uint8)", None),  # class labels
        ("torch.randint(-60, 60, (64, 1))", None),
    ],
)
def test_quantities_of_few_bits_go_to_the_ends_of_their_dtype(
    tmp_path: Path, integers: str, expected: tuple[int, int] | None
) -> None:
    instance = instance_of(tmp_path, "x * which", integers)
    assert larger_integers(instance, instance.inputs(1), instance.structure) == {1: expected}


def test_quantities_that_the_module_does_not_take_at_the_ends_stay_in_their_range(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "x[which.long()]", "torch.randint(0, 64, (640,), dtype=torch.uint8)")
    assert larger_integers(instance, instance.inputs(1), instance.structure) == {}
    whole = instance_of(tmp_path, "x * which", "torch.randint(-128, 128, (512, 64, 1), dtype=torch.int8)")
    assert larger_integers(whole, whole.inputs(1), whole.structure) == {}


def test_signed_integers_are_drawn_at_both_sides(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "x", "torch.randint(-60, 60, (64, 40), dtype=torch.int8)")
    _, fresh = with_larger(instance.inputs(1), torch.Generator().manual_seed(1), instance.structure, {1: (-128, 127)})
    assert fresh.dtype == torch.int8
    assert int(fresh.min()) < -120
    assert int(fresh.max()) > 120


@pytest.mark.parametrize("body", ["self.table(which)[..., :4]", "(which == self.rows - 1) * 1.0"])
def test_the_last_of_a_vocabulary_is_found_though_no_draw_holds_it(tmp_path: Path, body: str) -> None:
    instance = instance_of(
        tmp_path, body, "torch.randint(0, 90000, (64,))", "self.rows, self.table = 90000, nn.Embedding(90000, 4)"
    )
    assert 89999 in found(instance)
    assert 90000 not in found(instance)


def test_neighbours_of_named_integers_are_special_within_the_range(tmp_path: Path) -> None:
    instance = instance_of(tmp_path, "x * which[:, None]", "torch.randint(0, 90000, (64,))")
    assert {0, 1, 499, 501} <= set(found(instance))
    few = instance_of(tmp_path, "x * which[:, None]", "torch.randint(0, 9, (64,))")
    assert 5 not in found(few)  # draws hold it


def test_each_special_integer_is_there_once_at_least(tmp_path: Path) -> None:
    many = instance_of(tmp_path, "x", "torch.randint(0, 32, (64,))")
    numbers = list(range(-100, -70))
    _, fresh = with_special(many.inputs(1), torch.Generator().manual_seed(1), many.structure, {1: numbers})
    assert set(numbers) <= set(fresh.tolist())
    assert bool((fresh >= 0).any())


@pytest.mark.parametrize(
    ("body", "integers", "expected"),
    [
        ("x[which]", "torch.zeros(64, dtype=torch.long)", {1: (0, 63)}),  # sixty-four rows
        ("x[which]", "torch.full((64,), 9)", {1: (0, 63)}),
        ("x * which", "torch.ones(64, 1, dtype=torch.long)", {1: None}),  # a mask, which has no limit
        ("x * (torch.arange(32) < which)", "torch.tensor(20)", {1: (0, 32)}),  # no size of an input: up to the next one
        ("x * (torch.arange(32) < which)", "torch.tensor(32)", {1: None}),  # all of it
        ("x * (torch.arange(32) < which)", "torch.tensor(99)", {1: None}),
        ("x[:which]", "torch.tensor(20)", {1: None}),  # it says how large the output is
        ("x * which", "torch.full((64, 1), -1)", {}),
    ],
)
def test_integers_of_one_number_grow_as_far_as_the_module_takes(
    tmp_path: Path, body: str, integers: str, expected: dict[int, tuple[int, int] | None]
) -> None:
    instance = instance_of(tmp_path, body, integers)
    found = larger_integers(instance, instance.inputs(1), instance.structure)
    assert found == expected
    if (limit := found.get(1)) is not None:
        inputs = instance.inputs(1)
        fresh = with_larger(inputs, torch.Generator().manual_seed(1), instance.structure, {1: limit})[1]
        assert not torch.equal(fresh, inputs[1])


def test_targets_of_one_number_may_not_count(tmp_path: Path) -> None:
    zeros = "torch.zeros(64, dtype=torch.long)"
    assert found(instance_of(tmp_path, "nn.functional.cross_entropy(x, which)", zeros)) == [-100]
    assert found(instance_of(tmp_path, "x * which[:, None]", zeros)) == []


def test_a_number_with_a_result_of_its_own_is_special_if_its_neighbours_have_one_in_common(tmp_path: Path) -> None:
    chosen = "torch.where(which != -100, x.gather(1, which.clamp(min=0)[:, None])[:, 0], 0.0)"
    assert -100 in found(instance_of(tmp_path, chosen))
    assert -100 not in found(instance_of(tmp_path, "x.gather(1, which.clamp(min=0)[:, None])"))
    assert -1 not in found(instance_of(tmp_path, "x[which, 0]"))


def test_arrays_of_a_module_are_read_if_they_hold_integers() -> None:
    module = nn.Module()
    module.names, module.when = np.array(["a"]), np.array(["2020-01-01"], dtype="datetime64[D]")  # type: ignore[assignment]
    module.down, module.foreign = np.arange(30, 33)[::-1], np.array([7], dtype=">i4")  # type: ignore[assignment]
    module.empty = np.array([], dtype=np.int64)  # type: ignore[assignment]
    assert set(integers_of_buffers(module)) == {30, 31, 32, 7}

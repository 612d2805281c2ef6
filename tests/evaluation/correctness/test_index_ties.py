"""Other indices than torch's are right where their scores are as good, and only there."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kforge import problems
from kforge.evaluation.comparison.comparison import compare
from kforge.evaluation.correctness.rounding import excused
from kforge.evaluation.correctness.ties.index_ties import chosen_by, equally_good, names_one_twice
from kforge.evaluation.reference.choices import recorded
from kforge.evaluation.reference.reference import Reference
from kforge.problems.instance import instantiate
from kforge.records import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))

    def forward(self, x, mask):
        return {forward}

def get_inputs():
    return [torch.randn(256, 64), torch.ones(256, 64, dtype=torch.bool)]

def get_init_inputs():
    return []
"""


def accepts(folder: Path, forward: str, program: Callable[..., object], *inputs: torch.Tensor) -> bool:
    (folder / "problem.py").write_text(PROBLEM.format(forward=forward))
    reference = Reference(instantiate(problems.load(folder / "problem.py")), 0)
    given = list(inputs) or reference.instance.inputs(1)
    truth = reference.truth(given)
    output = program(reference.model, *given)
    found = compare(truth, output, "strict", "case")
    return not isinstance(found, Mismatch) or excused(reference, truth, output, "strict") is not None


def backwards(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same products, summed in another order."""
    return x.flip(1) @ weight.flip(0)


MASK = torch.ones(256, 64, dtype=torch.bool)


def test_a_constant_beside_an_all_true_mask_is_wrong(tmp_path: Path) -> None:
    assert not accepts(tmp_path, "(x @ self.weight).argmax(-1)", lambda model, x, mask: torch.zeros(256).long())
    assert not accepts(tmp_path, "x.masked_fill(~mask, 0).argmax(-1)", lambda model, x, mask: torch.zeros(256).long())


def test_the_first_of_a_mask_is_the_first(tmp_path: Path) -> None:
    def last(model: object, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.full((256,), 63)

    assert not accepts(tmp_path, "mask.int().argmax(-1)", last)
    assert not accepts(tmp_path, "mask.float().argmax(-1)", last)
    assert not accepts(tmp_path, "mask.int().max(-1).indices", last)


def with_columns_that_tie(weight: torch.Tensor) -> None:
    """Every second column is the one before it, moved by a rounding error."""
    with torch.no_grad():
        weight[:, 1::2] = weight[:, ::2] * (1 + 1e-7)


@pytest.mark.parametrize(
    ("forward", "choose"),
    [
        ("scores.argmax(-1)", lambda scores: scores.argmax(-1)),
        ("scores.argmax(-1, keepdim=True)", lambda scores: scores.argmax(-1, keepdim=True)),
        ("scores.t().argmin(0)", lambda scores: scores.argmin(-1)),
        ("scores.topk(8).indices", lambda scores: scores.topk(8).indices),
        ("scores.topk(8, sorted=False).indices", lambda scores: scores.topk(8).indices.flip(-1)),
        ("scores.argsort(-1)[:, :5]", lambda scores: scores.argsort(-1)[:, :5]),
        ("scores.argsort(-1).int()", lambda scores: scores.argsort(-1).int()),
        ("scores.sort(-1, descending=True)", lambda scores: tuple(scores.sort(-1, descending=True))),
        ("scores.t().max(0)", lambda scores: tuple(scores.max(-1))),
        ("scores.kthvalue(3)", lambda scores: tuple(scores.kthvalue(3))),
        ("scores.median(-1)", lambda scores: tuple(scores.median(-1))),
    ],
)
def test_swapped_near_ties_of_computed_scores_are_right(tmp_path: Path, forward: str, choose: object) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.format(forward=forward.replace("scores", "(x @ self.weight)")))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    for model in (reference.model, reference.exact_model):
        with_columns_that_tie(model.weight)
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(3))
    truth = reference.truth([x, MASK])
    output = choose(backwards(x, reference.model.weight.detach()))  # type: ignore[operator]
    assert isinstance(compare(truth, output, "strict", "case"), Mismatch), "or nothing is shown"
    assert excused(reference, truth, output, "strict") == "equal_choices"
    noise = 0.3 * torch.randn(256, 64, generator=torch.Generator().manual_seed(4))
    rough = choose(x @ reference.model.weight.detach() + noise)  # type: ignore[operator]
    assert excused(reference, truth, rough, "strict") is None


def test_ties_of_given_scores_may_stand_in_any_order_unless_that_is_defined(tmp_path: Path) -> None:
    x = torch.randint(0, 5, (256, 64), generator=torch.Generator().manual_seed(0)).float()

    def from_behind(model: object, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return 63 - x.flip(-1).argsort(dim=-1, stable=True)

    assert accepts(tmp_path, "x.argsort(dim=-1)", from_behind, x, MASK)
    assert accepts(tmp_path, "x.long().argsort(dim=-1)", from_behind, x, MASK)
    assert not accepts(tmp_path, "x.argsort(dim=-1, stable=True)", from_behind, x, MASK)


def test_given_scores_have_no_rounding(tmp_path: Path) -> None:
    x = torch.randn(256, 64)
    x[:, 1] = x.amax(-1) + 1
    x[:, 2] = torch.nextafter(x[:, 1], torch.tensor(0.0))

    def second(model: object, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.full((256,), 2)

    assert not accepts(tmp_path, "x.argmax(-1)", second, x, MASK)


def test_places_outside_and_places_named_twice_are_wrong(tmp_path: Path) -> None:
    x = torch.zeros(256, 64)
    for got in ([0, 0], [0, 64], [-1, 0], [0, 2**62]):
        assert not accepts(tmp_path, "x.topk(2).indices", lambda *_, got=got: torch.tensor([got] * 256), x, MASK)
    assert accepts(tmp_path, "x.topk(2).indices", lambda *_: torch.tensor([[5, 9]] * 256), x, MASK)


def test_integers_that_are_no_indices_stay_exact(tmp_path: Path) -> None:
    def one_more(model: object, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x > 0).sum(-1) + 1

    assert not accepts(tmp_path, "(x > 0).sum(-1)", one_more)


def last_largest(values: torch.Tensor, dimension: int) -> torch.Tensor:
    return values.shape[dimension] - 1 - values.flip(dimension).argmax(dimension)


@given(st.integers(0, 2), st.integers(0, 10_000))
@settings(max_examples=30)
def test_another_of_equal_values_is_right_and_a_smaller_one_is_not(dimension: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 3, (4, 5, 6), generator=generator).float()
    record = recorded(lambda: values.argmax(dimension))
    chosen = chosen_by(record, 0, values.argmax(dimension))
    assert chosen is not None
    assert equally_good(chosen, record, last_largest(values, dimension), "strict")
    lowest = values.argmin(dimension)
    as_good = bool((values.amin(dimension) == values.amax(dimension)).all())
    assert equally_good(chosen, record, lowest, "strict") == as_good


def test_an_index_of_the_flattened_tensor() -> None:
    values = torch.tensor([[1.0, 3.0], [3.0, 2.0]])
    record = recorded(values.argmax)
    chosen = chosen_by(record, 0, torch.tensor(1))
    assert chosen is not None
    assert equally_good(chosen, record, torch.tensor(2), "strict")
    assert not equally_good(chosen, record, torch.tensor(3), "strict")


def test_naming_a_place_twice_is_seen() -> None:
    assert names_one_twice(torch.tensor([[0, 1]]), torch.tensor([[2, 2]]))
    assert not names_one_twice(torch.tensor([[0, 0]]), torch.tensor([[2, 2]]))
    assert not names_one_twice(torch.tensor([[0, 1]]), torch.tensor([[2, 0]]))


@pytest.mark.parametrize(
    "scores",
    [
        "(x @ self.weight).masked_fill(~mask, -1e9)",
        "(x @ self.weight) + (~mask) * -1e9",
        "-torch.cdist(x, torch.where(mask[:1].T, self.weight, 20000 * self.weight))",
    ],
)
def test_a_score_far_off_makes_no_others_alike(tmp_path: Path, scores: str) -> None:
    mask = torch.arange(64).expand(256, 64) % 4 != 1
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(0))

    def second(model: torch.nn.Module, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        computed: torch.Tensor = eval(scores, {"x": x, "mask": mask, "self": model, "torch": torch})
        best = computed.topk(2, dim=-1)
        return torch.where(best.values[:, 0] - best.values[:, 1] < 0.05, best.indices[:, 1], best.indices[:, 0])

    def in_double(model: torch.nn.Module, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        model = copy.deepcopy(model).double()
        computed: torch.Tensor = eval(scores, {"x": x.double(), "mask": mask, "self": model, "torch": torch})
        return computed.argmax(-1)

    assert not accepts(tmp_path, f"({scores}).argmax(-1)", second, x, mask)
    assert accepts(tmp_path, f"({scores}).argmax(-1)", in_double, x, mask)


def test_a_choice_that_is_changed_in_place_must_be_changed(tmp_path: Path) -> None:
    masked = "(x @ self.weight).argmax(-1).masked_fill_(mask[:, 0], -100)"
    mask = torch.rand(256, 64) < 0.3
    x = torch.randn(256, 64)

    def not_masked(model: torch.nn.Module, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x @ model.weight).argmax(-1)

    assert not accepts(tmp_path, masked, not_masked, x, mask)
    assert not accepts(tmp_path, "(x @ self.weight).argmax(-1).mul_(7).add_(1)", not_masked)
    (tmp_path / "problem.py").write_text(PROBLEM.format(forward=masked))
    reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
    for model in (reference.model, reference.exact_model):
        with_columns_that_tie(model.weight)
    truth = reference.truth([x, mask])
    output = torch.where(mask[:, 0], -100, backwards(x, reference.model.weight.detach()).argmax(-1))
    assert isinstance(compare(truth, output, "strict", ""), Mismatch)
    assert excused(reference, truth, output, "strict") == "equal_choices"
    assert excused(reference, truth, output.masked_fill(mask[:, 0], -99), "strict") is None


TIED = torch.randint(0, 5, (256, 64), generator=torch.Generator().manual_seed(0)).float()
HOT = "torch.nn.functional.one_hot(x.topk(1).indices.squeeze(1), 64)"


def of_last(x: torch.Tensor, count: int) -> torch.Tensor:
    """Positions of the largest numbers; of equal ones, the last first."""
    return 63 - torch.sort(x.flip(-1), dim=-1, descending=True, stable=True).indices[:, :count]


def of_any(x: torch.Tensor, count: int) -> torch.Tensor:
    """Positions of the largest numbers; of equal ones, any."""
    columns = torch.randperm(64, generator=torch.Generator().manual_seed(9))
    return columns[torch.sort(x[:, columns], dim=-1, descending=True, stable=True).indices[:, :count]]


def looked_up(model: torch.nn.Module, places: torch.Tensor) -> torch.Tensor:
    return model.weight.detach().view(-1)[:64].expand(256, 64).gather(1, places)  # type: ignore[operator]


LOOKED_UP = "self.weight.detach().view(-1)[:64].expand(256, 64).gather(1, {})"


def test_what_follows_from_the_last_of_equal_scores_is_right(tmp_path: Path) -> None:
    places, hot = of_last(TIED, 8), torch.nn.functional.one_hot
    top = LOOKED_UP.format("x.topk(8).indices")
    assert accepts(tmp_path, top, lambda model, x, mask: looked_up(model, places), TIED, MASK)
    marks = "torch.zeros_like(x).scatter(1, x.topk(8).indices, 1.0)"
    assert accepts(tmp_path, marks, lambda model, x, mask: torch.zeros(256, 64).scatter(1, places, 1.0), TIED, MASK)
    assert accepts(tmp_path, HOT, lambda model, x, mask: hot(of_last(x, 1).squeeze(1), 64), TIED, MASK)


@pytest.mark.parametrize("choose", [of_last, of_any])
def test_what_follows_from_choices_that_are_returned_is_right(
    tmp_path: Path, choose: Callable[..., torch.Tensor]
) -> None:
    both = f"({LOOKED_UP.format('x.topk(8).indices')}, x.topk(8).indices)"
    places = choose(TIED, 8)
    assert accepts(tmp_path, both, lambda model, x, mask: (looked_up(model, places), places), TIED, MASK)
    moved = places.roll(1, 1)
    assert not accepts(tmp_path, both, lambda model, x, mask: (looked_up(model, moved), places), TIED, MASK)


def test_what_follows_from_the_last_of_equal_scores_may_be_summed(tmp_path: Path) -> None:
    summed = LOOKED_UP.format("x.topk(8).indices") + ".sum(1)"
    assert accepts(tmp_path, summed, lambda model, x, mask: looked_up(model, of_last(x, 8)).sum(1), TIED, MASK)


def test_what_follows_from_a_worse_choice_is_wrong(tmp_path: Path) -> None:
    top = LOOKED_UP.format("x.topk(8).indices")
    assert not accepts(tmp_path, top, lambda model, x, mask: looked_up(model, of_last(-x, 8)), TIED, MASK)
    assert not accepts(tmp_path, top, lambda model, x, mask: looked_up(model, of_last(x, 9)[:, 1:]).flip(1), TIED, MASK)
    assert not accepts(tmp_path, HOT, lambda model, x, mask: torch.zeros(256, 64).long(), TIED, MASK)
    marks = "torch.zeros_like(x).scatter(1, x.topk(8).indices, 1.0)"
    assert not accepts(tmp_path, marks, lambda model, x, mask: torch.zeros(256, 64), TIED, MASK)


def test_what_follows_from_a_defined_order_must_keep_it(tmp_path: Path) -> None:
    stable = LOOKED_UP.format("x.argsort(dim=-1, stable=True)")
    free = LOOKED_UP.format("x.argsort(dim=-1)")

    def from_behind(model: torch.nn.Module, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return looked_up(model, 63 - x.flip(-1).argsort(dim=-1, stable=True))

    assert accepts(tmp_path, free, from_behind, TIED, MASK)
    assert not accepts(tmp_path, stable, from_behind, TIED, MASK)


def test_without_equal_scores_there_is_one_choice(tmp_path: Path) -> None:
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(5))
    top = LOOKED_UP.format("x.topk(8).indices")
    other = x.clone()
    other[:, 0] += 1
    assert not accepts(tmp_path, top, lambda model, x, mask: looked_up(model, of_last(other, 8)), x, MASK)


BOTH = f"(lambda best: (best, 2 * best))({LOOKED_UP.format('x.topk(8).indices')})"


def test_all_outputs_follow_from_the_same_choice(tmp_path: Path) -> None:
    def program(one: torch.Tensor, other: torch.Tensor) -> Callable[..., object]:
        return lambda model, x, mask: (looked_up(model, one), 2 * looked_up(model, other))

    first = torch.sort(TIED, dim=-1, descending=True, stable=True).indices[:, :8]
    last = of_last(TIED, 8)
    assert accepts(tmp_path, BOTH, program(last, last), TIED, MASK)
    assert not accepts(tmp_path, BOTH, program(first, last), TIED, MASK)
    by_row = torch.where(torch.arange(256).view(-1, 1) % 2 == 0, first, last)
    assert accepts(tmp_path, BOTH, program(by_row, by_row), TIED, MASK)


def test_choices_of_one_call_may_prefer_different_ones_of_equal_scores(tmp_path: Path) -> None:
    two = f"({LOOKED_UP.format('x.topk(8).indices')}, {LOOKED_UP.format('(-x).topk(8).indices')})"
    first = torch.sort(TIED, dim=-1, descending=True, stable=True).indices[:, :8]
    assert accepts(
        tmp_path, two, lambda model, x, mask: (looked_up(model, first), looked_up(model, of_last(-x, 8))), TIED, MASK
    )


def test_rows_of_an_output_that_are_no_rows_of_the_choice_follow_from_one_choice(tmp_path: Path) -> None:
    keys = TIED[:64]
    first, last = keys.argsort(dim=0, stable=True), 63 - keys.flip(0).argsort(dim=0, stable=True)
    moved = "self.weight.detach().gather(0, x.argsort(dim=0))"

    def program(order: torch.Tensor) -> Callable[..., object]:
        return lambda model, x, mask: model.weight.detach().gather(0, order)

    assert accepts(tmp_path, moved, program(last), keys, MASK)
    assert not accepts(tmp_path, moved, program(torch.cat([first[:32], last[32:]])), keys, MASK)


def test_masks_may_follow_from_other_choices(tmp_path: Path) -> None:
    marks = "torch.zeros_like(mask).scatter(1, x.topk(8).indices, True)"
    empty = torch.zeros(256, 64, dtype=torch.bool)
    assert accepts(tmp_path, marks, lambda model, x, mask: empty.scatter(1, of_last(x, 8), True), TIED, MASK)
    assert not accepts(tmp_path, marks, lambda model, x, mask: empty, TIED, MASK)


def test_the_best_so_far_is_none_that_is_yet_to_come(tmp_path: Path) -> None:
    best = TIED.cummax(dim=1).values
    equal = best[:, :, None] == TIED[:, None, :]
    so_far = equal & torch.ones(64, 64, dtype=torch.bool).tril()
    at = torch.arange(64)
    first, last = equal.int().argmax(2), torch.where(equal, at, -1).amax(2)
    next_one = torch.where(so_far, 64, torch.where(equal, at, 64)).amin(2)
    later = torch.where(next_one < 64, next_one, first)
    assert accepts(tmp_path, "x.cummax(dim=1).indices", lambda *_: first, TIED, MASK)
    for wrong in (last, later):
        assert not accepts(tmp_path, "x.cummax(dim=1).indices", lambda *_, wrong=wrong: wrong, TIED, MASK)


FIRST_TIED = torch.sort(TIED, dim=-1, descending=True, stable=True).indices[:, :8]


def test_another_output_must_follow_from_the_choice_that_is_returned(tmp_path: Path) -> None:
    both = f"(x.topk(8).indices, {LOOKED_UP.format('x.topk(8).indices')})"
    once = f"(lambda best: (best, {LOOKED_UP.format('best')}))(x.topk(8).indices)"
    first, last = FIRST_TIED, of_any(TIED, 8)

    def program(returned: torch.Tensor, used: torch.Tensor) -> Callable[..., object]:
        return lambda model, x, mask: (returned, looked_up(model, used))

    for forward in (both, once):
        assert accepts(tmp_path, forward, program(last, last), TIED, MASK)
    torchs = TIED.topk(8).indices
    for used in (first, torchs):
        assert not accepts(tmp_path, once, program(last, used), TIED, MASK)


def test_a_choice_is_judged_by_the_scores_that_follow_from_an_earlier_one(tmp_path: Path) -> None:
    chain = "(lambda one: (one, (x + self.weight[one]).argmax(-1)))(x.argmax(-1))"
    first, last = TIED.argmax(-1), 63 - TIED.flip(-1).argmax(-1)

    def program(returned: torch.Tensor, used: torch.Tensor) -> Callable[..., object]:
        return lambda model, x, mask: (returned, (x + model.weight[used]).argmax(-1))  # type: ignore[index]

    assert accepts(tmp_path, chain, program(last, last), TIED, MASK)
    assert not accepts(tmp_path, chain, program(last, first), TIED, MASK)


def test_what_follows_from_a_part_of_a_choice_is_right(tmp_path: Path) -> None:
    part = f"(lambda best: (best[:, :3], {LOOKED_UP.format('best')}.sum(1)))(x.topk(8).indices)"
    tied = TIED.clone()
    tied[:, :8] += 5  # all of these are chosen
    last = of_last(tied, 8)

    def program(used: torch.Tensor) -> Callable[..., object]:
        return lambda model, x, mask: (last[:, :3], looked_up(model, used).sum(1))

    assert accepts(tmp_path, part, program(last), tied, MASK)
    assert not accepts(tmp_path, part, program(last.roll(1, 0) + 8), tied, MASK)


def test_a_tie_that_is_changed_in_place_must_be_changed(tmp_path: Path) -> None:
    first, last = TIED.argmax(-1), 63 - TIED.flip(-1).argmax(-1)
    clamped = "x.argmax(-1).clamp_(max=9)"
    assert accepts(tmp_path, clamped, lambda *_: last.clamp(max=9), TIED, MASK)
    assert not accepts(tmp_path, clamped, lambda *_: torch.where(first < 9, last, first.clamp(max=9)), TIED, MASK)


def test_beside_a_history_no_other_output_may_follow_from_a_tie(tmp_path: Path) -> None:
    last = 63 - TIED.flip(-1).argmax(-1)
    places = last.unsqueeze(1)
    used = f"(lambda one: (one, {LOOKED_UP.format('one.unsqueeze(1)')}))(x.argmax(-1))"
    for forward, other, label in (("(x.argmax(-1), 2 * x)", 2 * TIED, "equal_choices"), (used, None, None)):
        (tmp_path / "problem.py").write_text(PROBLEM.format(forward=forward))
        reference = Reference(instantiate(problems.load(tmp_path / "problem.py")), 0)
        truth = reference.truth([TIED, MASK])
        reference.has_history = True
        output = (last, looked_up(reference.model, places) if other is None else other)
        assert excused(reference, truth, output, "strict") == label


@pytest.mark.parametrize(
    "marks",
    [
        "mask.float().flip(1)",
        "1.0 - mask.float()",
        "mask.float() * mask",
        "2.0 * (mask.float() + mask).unsqueeze(0)[0]",
    ],
)
def test_the_first_of_what_is_computed_from_a_mask_is_the_first(tmp_path: Path, marks: str) -> None:
    mask = torch.rand(256, 64, generator=torch.Generator().manual_seed(0)) < 0.5

    def first(model: object, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        computed: torch.Tensor = eval(marks)
        return (computed == computed.amax(1, keepdim=True)).int().argmax(1)

    def last(model: object, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        computed: torch.Tensor = eval(marks)
        return last_largest(computed, 1)

    assert accepts(tmp_path, f"({marks}).argmax(-1)", first, TIED, mask)
    assert not accepts(tmp_path, f"({marks}).argmax(-1)", last, TIED, mask)
    for scores in (f"({marks}) * 0.5", f"({marks}).add_(torch.zeros_like(x))"):
        assert accepts(tmp_path, f"({scores}).argmax(-1)", last, TIED, mask)

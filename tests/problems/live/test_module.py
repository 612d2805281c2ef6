"""Problems out of live modules: readable, self-contained, and equal to the module."""

from __future__ import annotations

import hashlib
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kforge.errors import ProblemError
from kforge.problems.instance import instantiate
from kforge.problems.live.module import from_module, is_live, nature

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.records import Problem

Pair = namedtuple("Pair", "first second")


class Block(nn.Module):
    """Pre-norm block: the words of its author."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


class Everything(nn.Module):
    """Tied weights, hidden buffers, constants of both sizes, updated state, nested inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.items = nn.ParameterList([torch.randn(4), torch.randn(4)])
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("small", torch.tensor([1.5, float("inf")]), persistent=False)
        self.register_buffer("table", torch.randn(16, 16), persistent=False)
        self.plain = torch.tensor([[2.0]])

    def forward(self, x: torch.Tensor, pair: tuple[torch.Tensor, dict[str, torch.Tensor]], k: int) -> dict[str, Any]:
        self.calls += 1
        y = self.norm(self.second(self.first(x).relu())) * self.frozen + self.items[0] - self.items[1]
        y = y + self.table[:5, :4] * torch.tensor([1.0, 2.0, 3.0, 4.0]) * self.plain
        y = y.double().float() + torch.arange(4, device=x.device)
        y[0] = 3
        z = pair[0] * pair[1]["q"]
        return {"y": y, "rest": [z, None, k, x.max(dim=1), self.small.exp()]}


def made(module: nn.Module, inputs: Any, folder: Path) -> Problem:
    return from_module(module, inputs, name="live", folder=folder)


def agree(module: nn.Module, problem: Problem, inputs: tuple[Any, ...]) -> None:
    model = instantiate(problem).make_model()
    with torch.no_grad():
        torch.testing.assert_close(model(*inputs), module(*inputs))


def test_a_block(tmp_path: Path) -> None:
    block = Block()
    problem = made(block, (torch.randn(3, 8),), tmp_path)
    model = instantiate(problem).make_model()
    assert list(model.state_dict()) == list(block.state_dict())
    agree(block, problem, (torch.randn(3, 8),))
    assert '#     """Pre-norm block: the words of its author."""' in problem.source
    assert "layer_norm = aten.layer_norm(x, [8], self.norm.weight, self.norm.bias" in problem.source
    assert problem.state_path == str(tmp_path / "state.pt")
    assert problem.state_digest == hashlib.sha256((tmp_path / "state.pt").read_bytes()).hexdigest()
    workload = instantiate(problem).describe()
    assert workload.inputs[0].shape == (3, 8)
    assert workload.labels == ()


def test_weights_loaded_without_memory_are_not_kept(tmp_path: Path) -> None:
    block = Block()
    instance = instantiate(made(block, (torch.randn(3, 8),), tmp_path))
    for _ in range(2):  # in either order
        with FakeTensorMode():
            assert all(isinstance(each, FakeTensor) for each in instance.make_model().parameters())
        assert torch.equal(instance.make_model().get_parameter("mlp.0.weight"), block.mlp[0].weight)


def test_everything_at_once(tmp_path: Path) -> None:
    module = Everything()
    inputs = (torch.randn(5, 4), (torch.rand(3), {"q": torch.randint(9, (3,))}), 3)
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    problem = made(module, inputs, tmp_path)
    for key, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[key]), "the module is left as it was"
    model = instantiate(problem).make_model()
    assert set(model.state_dict()) - set(module.state_dict()) == {"table"}
    assert model.get_parameter("first.weight") is model.get_parameter("second.weight")
    assert not model.get_parameter("frozen").requires_grad
    with torch.no_grad():
        ours, theirs = model(*inputs), module(*inputs)
    assert torch.equal(ours["y"], theirs["y"])
    assert ours["rest"][1:3] == [None, 3]
    assert torch.equal(ours["rest"][4], theirs["rest"][4])
    assert torch.equal(model.get_buffer("norm.running_var"), module.norm.running_var)
    assert model.get_buffer("calls") == 1
    assert instantiate(problem).describe().labels == ("updates state",)


def test_inputs_are_drawn_like_the_examples(tmp_path: Path) -> None:
    class Many(nn.Module):
        def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
            return [tensor + 1 for tensor in tensors]

    examples = (
        torch.randn(64, 64) * 5 + 100,
        torch.rand(50, dtype=torch.float64),
        torch.randint(3, (40,)) * 10,
        torch.randint(1000, 2000, (500,), dtype=torch.int32),
        torch.rand(400) < 0.1,
        torch.zeros(4, 4).masked_fill(torch.ones(4, 4).triu(1) == 1, float("-inf")),
        torch.full((3,), 0.25, dtype=torch.bfloat16),
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.randn(6, 4).t(),
        torch.empty(0, 3),
        torch.tensor(2.0),
    )
    instance = instantiate(made(Many(), examples, tmp_path))
    fresh = instance.inputs(1)
    for example, value in zip(examples, fresh, strict=True):
        assert (value.shape, value.dtype, value.stride()) == (example.shape, example.dtype, example.stride())
    assert 99 < fresh[0].mean() < 101
    assert 4.5 < fresh[0].std() < 5.5
    assert not torch.equal(fresh[0], examples[0])
    rounded = 1e-6  # bounds are written into the source with few digits
    assert examples[1].min() - rounded <= fresh[1].min() <= fresh[1].max() <= examples[1].max() + rounded
    assert set(fresh[2].tolist()) <= {0, 10, 20}
    assert fresh[3].min() >= 1000
    assert fresh[3].max() < 2000
    assert 0.02 < fresh[4].float().mean() < 0.25
    assert set(fresh[5].unique().tolist()) == {0.0, float("-inf")}
    assert torch.equal(fresh[6], examples[6])
    assert not (tmp_path / "state.pt").exists()


def test_weights_keep_their_layout(tmp_path: Path) -> None:
    module = nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last).eval()
    model = instantiate(made(module, (torch.randn(2, 4, 8, 8),), tmp_path)).make_model()
    assert model.get_parameter("weight").stride() == module.weight.stride()


def test_ascending_integers_stay_ascending(tmp_path: Path) -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = nn.EmbeddingBag(100, 8)

        def forward(self, tokens: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return self.bag(tokens, offsets)

    many = torch.cat([torch.zeros(1, dtype=torch.int64), torch.randint(1, 5, (99,)).cumsum(0)])
    for offsets in (torch.tensor([0, 5, 10]), torch.tensor([0, 4, 11], dtype=torch.int64), many):
        problem = made(Bag(), (torch.randint(100, (500,)), offsets), tmp_path)
        _, drawn = instantiate(problem).inputs(3)
        assert drawn[0] == 0
        assert (drawn.diff() >= 0).all()
        assert (drawn.shape, drawn.dtype) == (offsets.shape, offsets.dtype)


def test_a_module_that_fails_on_fresh_inputs_is_told_at_once(tmp_path: Path) -> None:
    class Picky(nn.Module):
        def forward(self, x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
            return torch.linalg.cholesky(x) + order

    with pytest.raises(ProblemError, match="the module fails on random inputs of the examples' shapes") as error:
        made(Picky(), (torch.eye(4), torch.tensor(1.0)), tmp_path)
    assert "\n" not in str(error.value)


def test_no_name_breaks_out_of_the_comment(tmp_path: Path) -> None:
    problem = from_module(nn.ReLU(), torch.randn(2), name="two\nlines {braces}", folder=tmp_path)
    assert problem.source.startswith("# two lines {braces}: written by kforge")


def test_random_modules_agree_under_the_same_random_state(tmp_path: Path) -> None:
    problem = made(nn.Dropout(0.5), torch.randn(100), tmp_path)
    assert instantiate(problem).describe().labels == ("random",)


def test_evaluation_mode_is_kept(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    problem = made(module, (torch.randn(3, 4),), tmp_path)
    agree(module, problem, (torch.randn(3, 4),))
    assert instantiate(problem).describe().labels == ()


@pytest.mark.parametrize(
    ("module", "any_mode"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.GELU()), True),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), False),
        (nn.BatchNorm1d(4).eval(), False),
    ],
)
def test_whether_the_mode_matters_is_found_by_tracing_both(module: nn.Module, any_mode: bool) -> None:
    modes = [each.training for each in module.modules()]
    assert nature(module, (torch.randn(3, 4),)).any_mode == any_mode
    assert [each.training for each in module.modules()] == modes


def test_a_failed_trace_says_nothing_but_its_reason(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProblemError):
        made(DataDependent(), (torch.ones(3),), tmp_path)
    assert capfd.readouterr() == ("", "")


def test_a_problem_of_a_live_module_is_known_by_its_first_line(tmp_path: Path) -> None:
    problem = made(nn.ReLU(), torch.randn(2), tmp_path)
    assert is_live(problem)
    assert not is_live(problem.model_copy(update={"source": problem.source.partition("\n")[2]}))


def test_numbers_taken_from_tensors(tmp_path: Path) -> None:
    class Item(nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            k = n.item()
            return x * (k * 2 + 1)

    problem = made(Item(), (torch.randn(4), torch.tensor(3)), tmp_path)
    agree(Item(), problem, (torch.randn(4), torch.tensor(5)))


def test_named_tuples_become_tuples(tmp_path: Path) -> None:
    class Named(nn.Module):
        def forward(self, x: torch.Tensor) -> Pair:
            return Pair(x + 1, x - 1)

    output = instantiate(made(Named(), (torch.ones(2),), tmp_path)).make_model()(torch.ones(2))
    assert type(output) is tuple


class DataDependent(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Stateful(nn.Module):
    """Its output depends on a Python number that no graph can see."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class ExtraState(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def get_extra_state(self) -> int:
        return 3

    def set_extra_state(self, state: int) -> None: ...


@pytest.mark.parametrize(
    ("module", "inputs", "says"),
    [
        (DataDependent(), (torch.ones(3),), "torch.export cannot trace the module"),
        (nn.Linear(3, 3), (torch.ones(2),), "torch.export cannot trace the module"),
        (nn.Linear(3, 3), (torch.ones(3), 1), "the example inputs do not fit forward: too many positional"),
        (nn.Linear(3, 3), (), "the example inputs hold no tensors"),
        (Stateful(), (torch.ones(3),), "the generated problem does not agree with the module"),
        (ExtraState(), (torch.ones(3),), "holds '_extra_state', which is neither parameter nor buffer"),
    ],
)
def test_modules_that_cannot_be(module: nn.Module, inputs: tuple[Any, ...], says: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError) as error:
        made(module, inputs, tmp_path)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_custom_operator_cannot_be_carried(tmp_path: Path) -> None:
    with torch.library._scoped_library("kforge_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

        class Custom(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.ops.kforge_test.twice(x)

        with pytest.raises(ProblemError, match=r"uses the operator kforge_test\.twice\.default"):
            made(Custom(), (torch.ones(2),), tmp_path)

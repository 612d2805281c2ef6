"""A forged module runs its program where that was verified, and is the caller's own module everywhere else."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kforge.drop_in import FallbackWarning
from kforge.drop_in.calls import Calls
from kforge.drop_in.module import ForgedKernel, ForgedModule, Report, forged
from kforge.drop_in.program import Recipe
from kforge.drop_in.watched import Verified
from kforge.errors import InputError
from kforge.problems.live.module import nature
from kforge.problems.tensors import HOST
from kforge.records import Interval

Pair = namedtuple("Pair", "first second")


class Block(nn.Module):
    """A small module with everything that a forged one must keep."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("gain", torch.ones(4))
        self.register_buffer("shift", torch.zeros(4), persistent=False)
        self.power = 1

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return (self.linear(x) * self.gain * scale + self.shift) ** self.power

    def features(self) -> int:
        return self.linear.out_features


PROGRAM = """
import torch
from torch import nn

calls = 0

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("gain", torch.empty(4))

    def forward(self, x):
        global calls
        calls += 1
        return torch.addmm(self.linear.bias, x, self.linear.weight.t()).mul_(self.gain)
"""
KEEPS_DERIVED_WEIGHTS = PROGRAM.replace(
    "        return torch.addmm(self.linear.bias, x, self.linear.weight.t())",
    "        if not hasattr(self, 'packed'):\n"
    "            self.packed = (self.linear.weight.t().contiguous(),)\n"
    "        return torch.addmm(self.linear.bias, x, self.packed[0])",
)
KEEPS_VIEWS = PROGRAM.replace(
    '        self.register_buffer("gain", torch.empty(4))',
    '        self.register_buffer("gain", torch.empty(4))\n        self.view = [self.linear.weight.detach().t()]',
).replace("self.linear.weight.t()).mul_", "self.view[0]).mul_")


def program_calls() -> int:
    """How often the newest program was called."""
    import sys

    return max(
        getattr(module, "calls", 0) for name, module in sys.modules.items() if name.startswith("kforge_program_")
    )


def made(module: nn.Module, inputs: list[Any], source: str = PROGRAM, **more: Any) -> ForgedModule:
    """A forged module whose program nobody had to find."""
    traced = nature(module, tuple(inputs))
    held = set(module.state_dict())
    kernel = ForgedKernel(
        report=Report(Path("run"), "faster", Interval(median=2.0, low=1.5, high=2.5), labels=("library",)),
        recipe=Recipe(source, updates_state=bool(more.pop("updates_state", False))),
        calls=Calls(inputs, HOST.type, module.forward),
        verified=Verified.of(module, held, any_mode=traced.any_mode),
        output=more.pop("output", None),
        device_type=HOST.type,
        **more,
    )
    return forged(module, kernel)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(16, 8)


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval()


@pytest.fixture
def fast(block: Block, x: torch.Tensor) -> ForgedModule:
    return made(block, [x])


def runs_the_program(fast: ForgedModule, *args: Any, **kwargs: Any) -> Any:
    """The output of a call that no warning comes with."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        output = fast(*args, **kwargs)
    bound = fast._kforge_dispatch._bound
    assert bound is not None
    assert bound.program is not None
    return output


def falls_back(fast: ForgedModule, says: str, *args: Any, **kwargs: Any) -> Any:
    """The output of a call that the caller's module serves, with one warning the first time."""
    with pytest.warns(FallbackWarning, match=says) as caught:
        output = fast(*args, **kwargs)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(*args, **kwargs)
    return output


# --- the same module ----------------------------------------------------------------------------------------------


def test_a_verified_call_runs_the_program(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    torch.testing.assert_close(runs_the_program(fast, x), block(x))
    before = program_calls()
    runs_the_program(fast, x)
    assert program_calls() == before + 1
    assert not runs_the_program(fast, x).requires_grad


def test_it_is_the_callers_module_in_all_else(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    assert isinstance(fast, Block)
    assert isinstance(fast, ForgedModule)
    assert list(fast.state_dict()) == list(block.state_dict())
    assert all(ours is theirs for ours, theirs in zip(fast.parameters(), block.parameters(), strict=True))
    assert fast.linear is block.linear
    assert fast.features() == 4
    assert fast.train() is fast
    assert block.training
    assert block.linear.training
    block.eval()
    assert not fast.training
    fast.power = 1
    fast.note = "mine"
    assert block.note == "mine"
    assert (fast.finding, fast.speedup.median, fast.labels, fast.run) == ("faster", 2.0, ("library",), Path("run"))
    assert "kforge: faster, 2.00x (1.50 to 2.50)" in repr(fast)


def test_an_attribute_of_the_callers_module_wins_over_the_report(block: Block, x: torch.Tensor) -> None:
    block.labels = "own"
    fast = made(block, [x])
    assert fast.labels == "own"
    assert fast.report.labels == ("library",)


def test_parts_of_a_sequence_are_not_forged(x: torch.Tensor) -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    fast = made(module, [x], "raise RuntimeError('nobody runs this')")
    assert type(fast[:1]) is nn.Sequential
    with torch.no_grad():
        assert torch.equal(fast[:1](x), module[0](x))


# --- where the caller's own module runs ---------------------------------------------------------------------------


def test_gradients_are_the_callers(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    falls_back(fast, r"gradients are needed, and a kernel has none; .* torch\.no_grad\(\)", x).sum().backward()
    assert all(parameter.grad is not None for parameter in block.parameters())
    fast.requires_grad_(False)
    runs_the_program(fast, x)
    needed = x.clone().requires_grad_()
    fast(needed).sum().backward()
    assert needed.grad is not None


def test_other_shapes_dtypes_and_layouts_are_the_callers(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    with torch.no_grad():
        other = torch.randn(3, 5, 8)
        says = (
            r"input 'x' has the shape \(3, 5, 8\), and the kernel was verified for \(16, 8\); .* forge the module again"
        )
        assert torch.equal(falls_back(fast, says, other), block(other))
        assert torch.equal(falls_back(fast, "strides", x.t().contiguous().t()), block(x))
        inside = torch.randn(16 * 8 + 1)[1:].view(16, 8)
        assert torch.equal(falls_back(fast, "not a multiple of 64 bytes", inside), block(inside))
        whole = torch.randn(16, 8, dtype=torch.float64)
        with pytest.raises(RuntimeError, match="same dtype"), pytest.warns(FallbackWarning, match="float64"):
            fast(whole)
        runs_the_program(fast, x[0:].clone())


def test_a_module_that_moved_to_another_dtype_is_the_callers(fast: ForgedModule, x: torch.Tensor) -> None:
    runs_the_program(fast, x)
    fast.double()
    with torch.no_grad():
        assert falls_back(fast, "float64", x.double()).dtype == torch.float64
        fast.float()
    runs_the_program(fast, x)


def test_keyword_arguments_are_put_in_their_places(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    torch.testing.assert_close(runs_the_program(fast, x=x), block(x))
    torch.testing.assert_close(runs_the_program(fast, x, scale=1.0), block(x))
    with torch.no_grad():
        torch.testing.assert_close(falls_back(fast, "'scale' is given", x, scale=2.0), block(x, 2.0))
        with pytest.raises(TypeError, match="unexpected keyword"):
            fast(x, size=3)


def test_autocast_is_the_callers(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    with torch.no_grad(), torch.autocast(HOST.type, torch.bfloat16):
        assert torch.equal(falls_back(fast, "inside torch.autocast", x), block(x))


def test_transforms_and_tracers_are_the_callers(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    with pytest.warns(FallbackWarning, match="traced or transformed"), torch.no_grad():
        many = torch.func.vmap(fast)(torch.stack([x, x]))
    assert many.shape == (2, 16, 4)
    exported = torch.export.export(fast, (x,)).module()
    torch.testing.assert_close(exported(x), block(x))


def test_a_default_dtype_that_no_program_knows(fast: ForgedModule, x: torch.Tensor) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            falls_back(fast, "default dtype", x)
    finally:
        torch.set_default_dtype(torch.float32)


def test_hooks_run(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    runs_the_program(fast, x)
    seen: list[str] = []
    for module in (fast, block.linear):
        handle = module.register_forward_hook(lambda *_: seen.append("hook"))
        with torch.no_grad():
            fast._kforge_dispatch._said.clear()
            falls_back(fast, "hooks were added", x)
        assert seen == ["hook"] * 2
        handle.remove()
        seen.clear()
        runs_the_program(fast, x)


def test_changed_settings_and_constants_are_the_callers(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    runs_the_program(fast, x)
    block.power = 2
    with torch.no_grad():
        assert torch.equal(falls_back(fast, "'power' of the module was changed", x), block(x))
        block.power = 1
        runs_the_program(fast, x)
        block.shift += 3.0
        fast._kforge_dispatch._said.clear()
        assert torch.equal(falls_back(fast, "'shift' was changed", x), block(x))
        block.shift.zero_()
        runs_the_program(fast, x)
        block.linear = nn.Sequential(block.linear)
        fast._kforge_dispatch._said.clear()
        assert torch.equal(falls_back(fast, "'linear' was added, removed or replaced", x), block(x))


def test_the_mode_matters_only_where_the_module_says_so(x: torch.Tensor, fast: ForgedModule) -> None:
    runs_the_program(fast.train(), x)
    module = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5)).eval()
    source = PROGRAM.replace("self.linear = nn.Linear(8, 4)", "self.add_module('0', nn.Linear(8, 4))")
    source = source.replace('self.register_buffer("gain", torch.empty(4))', "pass").replace(".mul_(self.gain)", "")
    dropping = made(module, [x], source.replace("self.linear", "self.get_submodule('0')"))
    with torch.no_grad():
        torch.testing.assert_close(runs_the_program(dropping, x), module(x))
        dropped = falls_back(dropping.train(), "is in training mode, was forged in the other mode", x)
    assert (dropped == 0).any()


# --- weights ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [PROGRAM, KEEPS_DERIVED_WEIGHTS, KEEPS_VIEWS])
def test_the_program_follows_the_weights(source: str, block: Block, x: torch.Tensor) -> None:
    fast = made(block, [x], source)
    torch.testing.assert_close(runs_the_program(fast, x), block(x))
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.5)
    with pytest.warns(FallbackWarning):
        fast(x).square().sum().backward()
    optimizer.step()
    torch.testing.assert_close(runs_the_program(fast, x), block(x))
    fast.load_state_dict({name: torch.rand_like(each) for name, each in block.state_dict().items()})
    torch.testing.assert_close(runs_the_program(fast, x), block(x))
    fast.linear.weight = nn.Parameter(torch.rand(4, 8))
    torch.testing.assert_close(runs_the_program(fast, x), block(x))
    fast.linear.weight.data = torch.rand(4, 8)
    torch.testing.assert_close(runs_the_program(fast, x), block(x))


def test_the_program_has_no_weights_of_its_own(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    runs_the_program(fast, x)
    program = fast._kforge_dispatch._bound.program.model
    assert program.linear.weight.data_ptr() == block.linear.weight.data_ptr()
    assert program.gain.data_ptr() == block.gain.data_ptr()


def test_weights_of_another_layout_are_copied_for_the_program(block: Block, x: torch.Tensor) -> None:
    block.linear.weight = nn.Parameter(torch.rand(8, 4).t())
    fast = made(block, [x])
    for _ in range(2):
        torch.testing.assert_close(runs_the_program(fast, x), block(x))
        assert fast._kforge_dispatch._bound.program.model.linear.weight.is_contiguous()
        with torch.no_grad():
            block.linear.weight.mul_(3)


@pytest.mark.parametrize("update", ["self.total.add_(x.sum(0))", "self.total = self.total + x.sum(0)"])
def test_buffers_that_a_program_updates_are_the_callers(update: str, x: torch.Tensor) -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total += x.sum(0)
            return x - self.total

    module = Running()
    source = (
        "import torch\nfrom torch import nn\nclass ModelNew(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.register_buffer('total', torch.zeros(8))\n"
        f"    def forward(self, x):\n        {update}\n        return x - self.total\n"
    )
    fast = made(module, [x], source, updates_state=True)
    buffer = module.total
    for _ in range(3):
        runs_the_program(fast, x)
    assert module.total is buffer
    torch.testing.assert_close(buffer, 3 * x.sum(0))


def test_a_program_that_cannot_be_built_here_leaves_the_callers_module(block: Block, x: torch.Tensor) -> None:
    fast = made(block, [x], "import nothing_of_that_name")
    with torch.no_grad():
        assert torch.equal(falls_back(fast, "cannot be loaded: ModuleNotFoundError", x), block(x))


def test_outputs_have_the_callers_structure(x: torch.Tensor) -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> Pair:
            return Pair(x + 1, x - 1)

    source = (
        "from torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return (x + 1, x - 1)\n"
    )
    module = Two()
    fast = made(module, [x], source, output=Pair(0, 1))
    output = runs_the_program(fast, x)
    assert type(output) is Pair
    assert torch.equal(output.first, x + 1)


def test_nested_inputs_and_values_are_compared() -> None:
    class Nested(nn.Module):
        def forward(self, pair: tuple[torch.Tensor, dict[str, torch.Tensor]], k: int) -> torch.Tensor:
            return pair[0] * pair[1]["q"] + k

    source = (
        "from torch import nn\nclass ModelNew(nn.Module):\n"
        "    def forward(self, pair, k):\n        return pair[0] * pair[1]['q'] + 3\n"
    )
    a, b = torch.rand(4), torch.rand(4)
    fast = made(Nested(), [(a, {"q": b}), 3], source)
    assert torch.equal(runs_the_program(fast, (a, {"q": b}), 3), a * b + 3)
    assert torch.equal(falls_back(fast, "is 4, and the kernel was verified for 3", (a, {"q": b}), 4), a * b + 4)
    assert torch.equal(falls_back(fast, "not nested as", [a, {"q": b}], 3), a * b + 3)


# --- copies -------------------------------------------------------------------------------------------------------


def saved_and_loaded(fast: ForgedModule) -> ForgedModule:
    file = io.BytesIO()
    torch.save(fast, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda fast: pickle.loads(pickle.dumps(fast)),
    "torch.save": saved_and_loaded,
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_have_weights_and_a_program_of_their_own(
    way: str, fast: ForgedModule, block: Block, x: torch.Tensor
) -> None:
    runs_the_program(fast, x)
    other = COPIES[way](fast)
    assert isinstance(other, Block)
    assert isinstance(other, ForgedModule)
    assert other.report == fast.report
    assert other.linear is not block.linear
    torch.testing.assert_close(runs_the_program(other, x), block(x))
    with torch.no_grad():
        block.linear.weight.zero_()
    assert not torch.equal(runs_the_program(other, x), runs_the_program(fast, x))
    with torch.no_grad(), pytest.warns(FallbackWarning):
        assert other(x[:3]).shape == (3, 4)


def test_a_model_with_a_forged_part_is_saved_and_trained_as_a_whole(fast: ForgedModule, x: torch.Tensor) -> None:
    model = nn.Sequential(fast, nn.Linear(4, 2))
    other = nn.Sequential(Block(), nn.Linear(4, 2))
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(model(x), other(x))
    before = [each.detach().clone() for each in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(FallbackWarning):
        model(x).square().mean().backward()
    optimizer.step()
    assert all(not torch.equal(was, now) for was, now in zip(before, model.parameters(), strict=True))
    assert len(list(model.modules())) == 4
    model.half()
    assert fast.linear.weight.dtype == torch.float16


def test_a_module_that_cannot_be_pickled_says_so(fast: ForgedModule, block: Block) -> None:
    block.callback = lambda: None
    with pytest.raises(
        pickle.PicklingError, match=r"the original module of class Block cannot be pickled: .*state_dict"
    ):
        torch.save(fast, io.BytesIO())


def test_a_module_without_its_original_raises_instead(block: Block, x: torch.Tensor) -> None:
    fast = made(block, [x], fallback=False)
    runs_the_program(fast, x)
    with torch.no_grad(), pytest.raises(InputError, match=r"has the shape \(2, 8\).*kforge\.load\(run, module\)"):
        fast(x[:2])


def test_compiled_by_torch_it_is_the_callers_module(fast: ForgedModule, block: Block, x: torch.Tensor) -> None:
    compiled = torch.compile(nn.Sequential(fast), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), block(x))


READS_VERSIONS = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 8))

    def forward(self, x):
        assert self.weight._version >= 0
        return x @ self.weight
"""


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_new_weights_in_inference_mode() -> None:
    """A program may look at the version of its weights, as the smith's do, which tensors of inference mode have not."""
    module, x = Product(), torch.randn(4, 8)
    fast = made(module, [x], READS_VERSIONS)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), module.forward(x))
    module.load_state_dict({"weight": torch.randn(8, 8)})
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), module.forward(x))
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module.forward(x))


def test_a_wrong_call_is_refused_by_the_module_without_a_warning(fast: ForgedModule) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            fast()

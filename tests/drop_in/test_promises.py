"""The promises of a forged module that need two threads, another device, or several inputs and keywords."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch
from tests.drop_in.test_module import Block, made
from torch import nn

from kforge.drop_in import FallbackWarning

ROUNDS = 50
"""Calls of each thread."""


class Mixture(nn.Module):
    """Several inputs, weights, buffers of both kinds, and a keyword with a default."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.register_buffer("mean", torch.randn(8))
        self.register_buffer("scale", torch.full((8,), 2.0), persistent=False)

    def forward(self, a: torch.Tensor, b: torch.Tensor, *, sharpness: float = 1.0) -> torch.Tensor:
        return torch.tanh(sharpness * (self.first(a) + self.second(b) - self.mean)) * self.scale


MIXTURE = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.register_buffer("mean", torch.empty(8))

    def forward(self, a, b):
        return (self.first(a) + self.second(b) - self.mean).tanh_().mul_(2.0)
"""


def test_two_threads_get_their_own_outputs() -> None:
    torch.manual_seed(0)
    block = Block().eval()
    fast = made(block, [torch.randn(16, 8)])
    start, wrong = threading.Barrier(2), list[str]()

    def call(seed: int) -> None:
        inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            expected = block(inputs)
            start.wait()  # both build the program at once
            for _ in range(ROUNDS):
                if not torch.allclose(fast(inputs), expected, atol=1e-6):
                    wrong.append(f"thread {seed}")

    threads = [threading.Thread(target=call, args=(seed,)) for seed in (1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert fast._kforge_dispatch._bound is not None
    assert fast._kforge_dispatch._bound.program is not None


def test_a_module_that_moved_to_another_device_is_the_callers() -> None:
    """The device without memory is another device on every machine."""
    block = Block().eval()
    x = torch.randn(16, 8)
    fast = made(block, [x])
    moved = fast.to("meta")
    assert moved is fast
    assert all(each.device.type == "meta" for each in fast.parameters())
    with torch.no_grad(), pytest.warns(FallbackWarning, match="is on meta") as caught:
        assert fast(x.to("meta")).device.type == "meta"
    assert len(caught) == 1
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        fast(x.to("meta"))


def test_weights_that_came_back_from_a_device_serve_the_kernel() -> None:
    block = Block().eval()
    x = torch.randn(16, 8)
    fast = made(block, [x])
    kept = {name: value.clone() for name, value in fast.state_dict().items()}
    fast.to("meta").to_empty(device="cpu")
    fast.load_state_dict(kept)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)  # the buffer that no state dict keeps is new
        fast.shift.zero_()
        torch.testing.assert_close(fast(x), block(x))


def test_several_inputs_and_keywords() -> None:
    torch.manual_seed(0)
    module = Mixture().eval()
    a, b = torch.randn(4, 8), torch.randn(4, 8)
    fast = made(module, [a, b], MIXTURE)
    with torch.no_grad():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for output in (fast(a, b), fast(a, b=b), fast(b=b, a=a), fast(a, b, sharpness=1.0)):
                torch.testing.assert_close(output, module(a, b))
        with pytest.warns(FallbackWarning, match="'sharpness' is given") as caught:
            torch.testing.assert_close(fast(a, b, sharpness=3.0), module(a, b, sharpness=3.0))
        assert len(caught) == 1
        with pytest.warns(FallbackWarning, match="has the shape"):
            torch.testing.assert_close(fast(a[:2], b[:2]), module(a[:2], b[:2]))
    fast.train()
    with pytest.warns(FallbackWarning, match="gradients"):
        fast(a, b).sum().backward()
    assert all(each.grad is not None for each in module.parameters())
    assert (
        list(fast.state_dict()) == list(module.state_dict()) == ["mean", "first.weight", "first.bias", "second.weight"]
    )

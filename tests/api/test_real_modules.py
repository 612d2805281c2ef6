"""Ten modules as users have them, forged by the built-in brain: same numbers, gradients, other shapes, copies."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from tests.api.real_modules import MODULES

import kforge

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:mkldnn_matmul failed"),  # torch's, on processors without bfloat16
]

WITH_KERNELS = {"convolution", "norm", "sequence", "nested", "buffers", "no parameters"}
"""The rest are products, which are left to torch on most processors, and bfloat16, which is on all."""


@pytest.mark.parametrize("name", MODULES)
def test_a_real_module_is_forged_and_stays_what_it_was(name: str) -> None:
    torch.manual_seed(0)
    make, draw = MODULES[name]
    module, inputs = make().eval(), draw()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kforge.SpeedWarning)  # a busy test machine, and small inputs
        warnings.filterwarnings("ignore", "the best kernel is slower")
        fast = kforge.forge(
            module, inputs, platform="cpu", iterations=1, compile_baseline=False, replications=0, sanitize=False,
            progress=False,
        )  # fmt: skip
    assert fast.finding != "no kernel found"
    assert fast.receipt is not None
    source = (fast.run / "best.py").read_text()
    assert 'extern "C" void' in source or name not in WITH_KERNELS
    with torch.no_grad():
        for given in (inputs, draw()):
            torch.testing.assert_close(fast(*given), module(*given))
    if fast.finding != "slower":  # a busy machine may find anything
        assert fast._kforge_dispatch._bound.program is not None
    assert list(fast.state_dict()) == list(module.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kforge.FallbackWarning)
        fewer = [each[:1] for each in inputs]
        torch.testing.assert_close(fast(*fewer), module(*fewer))
        gradients(fast, inputs)
        assert all(each.grad is not None for each in module.parameters())
        with torch.no_grad():
            torch.testing.assert_close(copy.deepcopy(fast)(*inputs), module(*inputs))


def gradients(module: torch.nn.Module, inputs: list[torch.Tensor]) -> None:
    output = module(*inputs)
    outputs = output if isinstance(output, tuple) else (output,)
    total = sum(each.float().square().sum() for each in outputs)
    if total.requires_grad:
        total.backward()

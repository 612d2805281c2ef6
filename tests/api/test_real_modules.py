"""The snippets of docs/python-api.md, run as they are written with modules as users have them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

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
OF_EACH_KIND = {"sequence", "tied weights and indices"}
"""Kernels beside products; integers, and weights used twice. Modules for which no kernel is found: test_forging.py."""
VOLUME = [pytest.param(name, marks=pytest.mark.volume) for name in MODULES if name not in OF_EACH_KIND]


def judged(root: Path) -> dict[str, Any]:
    """A problem file, a program for it, and a folder of one problem."""
    example = root / "src" / "kforge" / "platforms" / "null" / "example"
    folder = Path("problems")
    folder.mkdir()
    (folder / "norm.py").write_text((example / "reference.py").read_text())
    return {"problem_file": folder / "norm.py", "program_file": example / "kernel.py", "folder": folder}


def snippets(root: Path) -> list[str]:
    page = (root / "docs" / "python-api.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [*sorted(OF_EACH_KIND), *VOLUME])
def test_snippets_of_the_docs_work_for_a_real_module(name: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    make, draw = MODULES[name]
    module, inputs = make().eval(), draw()
    names: dict[str, Any] = {"module": module, "example_inputs": inputs, **judged(root)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kforge.SpeedWarning)  # a busy test machine, and small inputs
        warnings.simplefilter("ignore", kforge.FallbackWarning)
        for snippet in (texts := snippets(root)):
            exec(compile(snippet, "python-api.md", "exec"), names)
    assert len(texts) == 6
    fast, out = names["fast"], capsys.readouterr().out
    assert out.startswith(f"{fast.finding} median=")
    assert names["evaluation"].correct is not None
    assert "norm" in [each.name for each in names["done"].results]
    assert names["page"]
    assert fast.finding in ("faster", "slower", "cannot tell", "not measured")
    assert fast.receipt is not None
    assert 'extern "C" void' in (fast.run / "best.py").read_text() or name not in WITH_KERNELS
    check(fast, module, inputs, draw())
    check(names["again"], module, inputs, draw())
    check(names["same"], module, inputs, draw())
    for each in module.parameters():
        assert each.grad is None
    total = sum(each.float().square().sum() for each in tensors(fast(*inputs)))
    if list(module.parameters()):
        total.backward()
        assert all(each.grad is not None for each in module.parameters())
    assert list(torch.load("weights.pt")) == list(module.state_dict())


def check(fast: kforge.ForgedModule, module: torch.nn.Module, *inputs: list[torch.Tensor]) -> None:
    """Same numbers as the module at the forged shape, by the kernel if that is used, and at another one."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "mkldnn_matmul failed")
        for given in inputs:
            torch.testing.assert_close(fast(*given), module(*given))
        if fast.finding != "slower":  # which a busy machine may find
            assert fast._kforge_dispatch._bound.program is not None
        warnings.simplefilter("ignore", kforge.FallbackWarning)
        fewer = [each[:1] for each in inputs[0]]
        torch.testing.assert_close(fast(*fewer), module(*fewer))


def tensors(output: Any) -> tuple[torch.Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)

"""Names of parameters that no language allows: numbers of `nn.Sequential`, keywords, keys of dictionaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from kforge import platforms
from kforge.problems.instance import instantiate
from kforge.problems.live.module import from_module
from kforge.smith.brain import Smith

if TYPE_CHECKING:
    from pathlib import Path


class Scale(nn.Module):
    """A parameter whose name is a keyword of Python and of C++."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_parameter("class", nn.Parameter(torch.rand(features)))
        self.weights = nn.ParameterDict({"a-b": torch.rand(features), "while": torch.rand(features)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * getattr(self, "class") * self.weights["a-b"] + self.weights["while"]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(24), nn.GELU(), Scale(24))
        self.items = nn.ParameterList([torch.rand(24), torch.rand(24)])

    def forward(self, double: torch.Tensor) -> torch.Tensor:
        return self.layers(double) * self.items[0] + self.items[1]


MODULES = {
    "a sequence": nn.Sequential(nn.Linear(24, 16), nn.GELU(), nn.LayerNorm(16)),
    "a sequence inside": Layers(),
    "a sequence in a sequence": nn.Sequential(nn.Sequential(nn.LayerNorm(24)), Scale(24)),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_kernel_reads_parameters_of_any_name(name: str, tmp_path: Path) -> None:
    module, x = MODULES[name], torch.randn(8, 24)
    problem = from_module(module, [x], name=name, folder=tmp_path)
    instance = instantiate(problem)
    answer = Smith(platforms.find("cpu")).write(problem, instance.describe())
    assert answer.candidate is not None
    source = answer.candidate.source
    assert 'extern "C" void fused_' in source
    written: dict[str, Any] = {"__name__": "candidate"}
    exec(compile(source, "candidate.py", "exec"), written)
    program = written["ModelNew"]()
    program.load_state_dict(module.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(program(x), module(x))

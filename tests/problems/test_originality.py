"""A program is the original module unchanged only where nothing that could compute is its own."""

from __future__ import annotations

import pytest

from kforge.problems.originality import is_unchanged

PROBLEM = '''\
"""A module with a helper."""

import torch
from torch import nn

SIZE = 8


class Block(nn.Module):
    def forward(self, x):
        return torch.relu(x)


class Model(nn.Module):
    """The original."""

    def __init__(self, size):
        super(Model, self).__init__()
        self.block = Block()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return self.block(x) * self.scale


def get_inputs():
    return [torch.randn(SIZE)]


def get_init_inputs():
    return [SIZE]
'''
MODEL = PROBLEM.partition("\n\ndef get_inputs")[0]
RENAMED = MODEL.replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")


@pytest.mark.parametrize(
    "source",
    [
        MODEL + "\n\nclass ModelNew(Model):\n    pass\n",
        MODEL + '\n\nclass ModelNew(Model):\n    """Fast."""\n',
        PROBLEM + "\n\nclass ModelNew(Model): ...\n",
        "import math\n" + MODEL + "\n\nModelNew = Model\n",
        RENAMED,
        RENAMED.replace('    """The original."""\n', "").replace("super(ModelNew, self)", "super()"),
        MODEL + "\n\nclass ModelNew(Model):\n    def forward(self, x):\n        return super().forward(x)\n",
        MODEL
        + "\n\nclass ModelNew(Model):\n    def __init__(self, *args, **more):\n"
        + "        super().__init__(*args, **more)\n\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n"
        + "        return super(ModelNew, self).forward(x)\n",
        "# a comment\n" + MODEL + "\n\nclass Between(Model):\n    pass\n\n\nclass ModelNew(Between):\n    pass\n",
    ],
)
def test_a_program_that_is_the_original_is_recognised(source: str) -> None:
    assert is_unchanged(PROBLEM, source)


@pytest.mark.parametrize(
    "source",
    [
        MODEL + "\n\nclass ModelNew(Model):\n    def forward(self, x):\n        return torch.relu(x) * self.scale\n",
        MODEL.replace("torch.relu(x)", "x.clamp(min=0)") + "\n\nclass ModelNew(Model):\n    pass\n",
        MODEL + "\n\ntorch.set_num_threads(1)\n\n\nclass ModelNew(Model):\n    pass\n",
        MODEL + "\n\nclass ModelNew(torch.compile(Model)):\n    pass\n",
        MODEL + "\n\nModelNew = torch.compile(Model)\n",
        MODEL + "\n\nclass ModelNew(Model):\n    forward = torch.compile(Model.forward)\n",
        MODEL + "\n\n@torch.jit.script\nclass ModelNew(Model):\n    pass\n",
        MODEL + "\n\nclass ModelNew(Model):\n    def forward(self, x):\n        return super().forward(x + 0)\n",
        MODEL + "\n\nclass ModelNew(Model):\n    def forward(self, x):\n        with torch.inference_mode():\n"
        "            return super().forward(x)\n",
        RENAMED.replace("* self.scale", "* self.scale.data"),
        "class ModelNew(Model): pass",
        "def (",
        "",
    ],
)
def test_a_program_with_anything_of_its_own_is_not(source: str) -> None:
    assert not is_unchanged(PROBLEM, source)

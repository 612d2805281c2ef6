"""A small problem, and an answer with a right program for it."""

PROBLEM = """\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
"""
PROGRAM = """\
```python
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return 2 * x
```
"""

"""The tanh approximation of GELU, as people write it down from a paper."""

import math

import torch
from torch import nn

ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3))
        return 0.5 * x * (1.0 + torch.tanh(inner))


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []

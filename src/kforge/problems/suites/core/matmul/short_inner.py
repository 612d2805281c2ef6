"""An outer product of sorts: a short sum and a large result."""

import torch
from torch import nn

ROWS = 1024
INNER = 16
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, left, right):
        return left @ right


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []

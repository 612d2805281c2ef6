"""Few rows, few columns and a long sum between them."""

import torch
from torch import nn

ROWS = 64
INNER = 16384
COLUMNS = 64


class Model(nn.Module):
    def forward(self, left, right):
        return left @ right


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []

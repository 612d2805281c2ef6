"""Many products of middling matrices."""

import torch
from torch import nn

BATCH = 16
ROWS = 128
INNER = 128
COLUMNS = 128


class Model(nn.Module):
    def forward(self, left, right):
        return torch.bmm(left, right)


def get_inputs():
    return [torch.randn(BATCH, ROWS, INNER), torch.randn(BATCH, INNER, COLUMNS)]


def get_init_inputs():
    return []

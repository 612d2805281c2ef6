"""A product of two matrices that are both stored transposed."""

import torch
from torch import nn

ROWS = 512
INNER = 512
COLUMNS = 384


class Model(nn.Module):
    def forward(self, left, right):
        return left.t() @ right.t()


def get_inputs():
    return [torch.randn(INNER, ROWS), torch.randn(COLUMNS, INNER)]


def get_init_inputs():
    return []

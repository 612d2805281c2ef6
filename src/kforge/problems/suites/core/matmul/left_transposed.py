"""A product whose left matrix is stored transposed."""

import torch
from torch import nn

ROWS = 384
INNER = 768
COLUMNS = 512


class Model(nn.Module):
    def forward(self, left, right):
        return left.t() @ right


def get_inputs():
    return [torch.randn(INNER, ROWS), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []

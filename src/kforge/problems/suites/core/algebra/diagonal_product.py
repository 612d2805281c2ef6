"""A diagonal matrix times a matrix."""

import torch
from torch import nn

ROWS = 512
COLUMNS = 512


class Model(nn.Module):
    def forward(self, diagonal, matrix):
        return torch.diag(diagonal) @ matrix


def get_inputs():
    return [torch.randn(ROWS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []

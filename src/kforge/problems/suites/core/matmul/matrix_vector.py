"""A matrix times one vector: all of it is read once."""

import torch
from torch import nn

ROWS = 2048
COLUMNS = 2048


class Model(nn.Module):
    def forward(self, matrix, vector):
        return matrix @ vector


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs():
    return []

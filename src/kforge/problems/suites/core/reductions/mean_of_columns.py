"""The mean of every column: the reduced dimension is not the contiguous one."""

import torch
from torch import nn

ROWS = 2048
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.mean(x, dim=0)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []

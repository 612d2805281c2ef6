"""A tall, narrow matrix times a small one."""

import torch
from torch import nn

ROWS = 8192
INNER = 64
COLUMNS = 64


class Model(nn.Module):
    def forward(self, left, right):
        return left @ right


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []

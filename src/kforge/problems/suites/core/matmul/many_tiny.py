"""Thousands of products of matrices that fit into registers."""

import torch
from torch import nn

BATCH = 4096
SIZE = 8


class Model(nn.Module):
    def forward(self, left, right):
        return torch.matmul(left, right)


def get_inputs():
    return [torch.randn(BATCH, SIZE, SIZE), torch.randn(BATCH, SIZE, SIZE)]


def get_init_inputs():
    return []

"""A sum over the middle of three dimensions, after an absolute value."""

import torch
from torch import nn

BATCH = 16
MIDDLE = 256
INNER = 256


class Model(nn.Module):
    def forward(self, x):
        return x.abs().sum(dim=1)


def get_inputs():
    return [torch.randn(BATCH, MIDDLE, INNER)]


def get_init_inputs():
    return []

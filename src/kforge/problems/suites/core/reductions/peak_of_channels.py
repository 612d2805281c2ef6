"""The largest activation of every channel."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 64
SIDE = 48


class Model(nn.Module):
    def forward(self, x):
        return torch.amax(x, dim=(-2, -1))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []

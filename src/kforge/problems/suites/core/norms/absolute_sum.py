"""Every row is divided by the mean of its absolute values."""

import torch
from torch import nn

ROWS = 1024
FEATURES = 768


class Model(nn.Module):
    def forward(self, x):
        return x / (x.abs().mean(dim=-1, keepdim=True) + 1e-6)


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return []

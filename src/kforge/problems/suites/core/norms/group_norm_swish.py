"""Group norm of feature maps, then a swish."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 64
SIDE = 48
GROUPS = 8


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        x = self.norm(x)
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [GROUPS, CHANNELS]

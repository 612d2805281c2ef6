"""Every channel has its own seven-by-seven filter, with stride two."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 48
SIDE = 56


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, stride=2, padding=3, groups=channels, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]

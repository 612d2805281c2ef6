"""A one-by-one convolution, of which the average over the image is kept."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 96
SIDE = 32
OUT = 128


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 1)

    def forward(self, x):
        return self.conv(x).mean(dim=(2, 3))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]

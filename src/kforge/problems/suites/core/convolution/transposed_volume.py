"""A transposed convolution of a volume."""

import torch
from torch import nn

BATCH = 1
CHANNELS = 8
SIDE = 12
OUT = 8


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.ConvTranspose3d(channels, out, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]

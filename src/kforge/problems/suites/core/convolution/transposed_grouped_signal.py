"""A transposed, grouped and dilated convolution over time."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 48
STEPS = 256
OUT = 48


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.ConvTranspose1d(channels, out, 5, stride=2, dilation=2, groups=4)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, STEPS)]


def get_init_inputs():
    return [CHANNELS, OUT]

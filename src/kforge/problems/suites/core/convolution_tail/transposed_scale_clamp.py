"""A transposed convolution whose output is biased, limited and rescaled."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 32
SIDE = 20
OUT = 16


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels, out, 3, stride=2, padding=1, output_padding=1)
        self.bias = nn.Parameter(torch.randn(out, 1, 1))

    def forward(self, x):
        x = torch.clamp(self.conv(x) + self.bias, 0.0, 1.0)
        return torch.clamp(2.0 * x, 0.0, 1.0) / 2.0


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]

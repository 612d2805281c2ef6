"""A convolution of a volume, then the class probabilities of every voxel."""

import torch
from torch import nn

BATCH = 1
CHANNELS = 8
SIDE = 20
OUT = 12


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv3d(channels, out, 3, padding=1)

    def forward(self, x):
        return torch.softmax(4.0 * self.conv(x), dim=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]

"""Convolution, frozen batch norm, rectifier: the bread and butter of vision."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 32
SIDE = 32
OUT = 32


class Model(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out)
        nn.init.normal_(self.norm.running_mean, std=0.1)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)
        self.eval()

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, OUT]

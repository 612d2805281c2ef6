"""Average pooling of a volume."""

import torch
from torch import nn

BATCH = 2
CHANNELS = 16
SIDE = 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool3d(kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE, SIDE)]


def get_init_inputs():
    return []

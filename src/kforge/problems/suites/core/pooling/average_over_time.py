"""Average pooling of a signal with long windows."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 64
STEPS = 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool1d(kernel_size=8, stride=4)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, STEPS)]


def get_init_inputs():
    return []

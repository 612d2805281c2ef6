"""What stands out: max pooling minus average pooling of the same windows."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 32
SIDE = 80


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.max_pool2d(x, 2) - nn.functional.avg_pool2d(x, 2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []

"""A log-softmax over a dimension that is not the contiguous one."""

import torch
from torch import nn

BATCH = 16
CLASSES = 128
WIDTH = 256


class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, dim=1)


def get_inputs():
    return [torch.randn(BATCH, CLASSES, WIDTH)]


def get_init_inputs():
    return []

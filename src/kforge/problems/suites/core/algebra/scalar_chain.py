"""A calibration in many small steps, all of them linear."""

import torch
from torch import nn

ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def forward(self, x):
        x = x * 1.8 + 32.0
        x = (x - 10.0) / 4.0
        x = x * 0.5 - 3.0
        return (x + 0.25) * 2.0 - x


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []

"""A bias per feature, a Mish, a second bias and a hard limit."""

import torch
from torch import nn

ROWS = 512
FEATURES = 1024


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.before = nn.Parameter(torch.randn(features))
        self.after = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = nn.functional.mish(x + self.before)
        return nn.functional.hardtanh(x + self.after, -1.5, 2.5)


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]

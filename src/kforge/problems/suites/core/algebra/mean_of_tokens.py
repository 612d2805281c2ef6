"""Every token is projected, then all tokens of a sequence are averaged."""

import torch
from torch import nn

BATCH = 8
TOKENS = 128
FEATURES = 256
OUT = 256


class Model(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)

    def forward(self, x):
        return self.linear(x).mean(dim=1)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, OUT]

"""Tokens of a batch of sequences times one weight."""

import torch
from torch import nn

BATCH = 8
TOKENS = 128
FEATURES = 256
OUT = 256


class Model(nn.Module):
    def __init__(self, features, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, out) * features**-0.5)

    def forward(self, x):
        return torch.einsum("btf,fo->bto", x, self.weight)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, OUT]

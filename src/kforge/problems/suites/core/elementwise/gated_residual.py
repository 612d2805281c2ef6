"""A residual whose update is gated per token and per feature."""

import torch
from torch import nn

BATCH = 8
TOKENS = 128
FEATURES = 512


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x, update, gate):
        opened = torch.sigmoid(gate + self.bias)
        return x + opened * torch.tanh(update)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES), torch.randn(BATCH, TOKENS, FEATURES), torch.randn(BATCH, TOKENS, 1)]


def get_init_inputs():
    return [FEATURES]

"""The feed-forward half of a modern transformer layer."""

import torch
from torch import nn

TOKENS = 256
FEATURES = 256
HIDDEN = 512


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)
        self.gate = nn.Linear(features, hidden, bias=False)
        self.up = nn.Linear(features, hidden, bias=False)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.gain
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def get_inputs():
    return [torch.randn(TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HIDDEN]

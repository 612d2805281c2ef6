"""One step of a plain recurrent network."""

import torch
from torch import nn

ROWS = 256
INNER = 256
HIDDEN = 512


class Model(nn.Module):
    def __init__(self, inner, hidden):
        super().__init__()
        self.inward = nn.Linear(inner, hidden)
        self.across = nn.Linear(hidden, hidden)

    def forward(self, x, state):
        return torch.tanh(self.inward(x) + self.across(state))


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(ROWS, HIDDEN)]


def get_init_inputs():
    return [INNER, HIDDEN]

"""One step of a gated recurrent unit, written out."""

import torch
from torch import nn

ROWS = 128
INNER = 256
HIDDEN = 256


class Model(nn.Module):
    def __init__(self, inner, hidden):
        super().__init__()
        self.inward = nn.Linear(inner, 3 * hidden)
        self.across = nn.Linear(hidden, 3 * hidden)

    def forward(self, x, state):
        reset_x, update_x, new_x = self.inward(x).chunk(3, dim=-1)
        reset_h, update_h, new_h = self.across(state).chunk(3, dim=-1)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        return update * state + (1.0 - update) * new


def get_inputs():
    return [torch.randn(ROWS, INNER), torch.randn(ROWS, HIDDEN)]


def get_init_inputs():
    return [INNER, HIDDEN]

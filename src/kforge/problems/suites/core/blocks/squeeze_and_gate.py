"""Channels are weighed by what the whole image says about them."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 64
SIDE = 56
HIDDEN = 16


class Model(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.squeeze = nn.Linear(channels, hidden)
        self.spread = nn.Linear(hidden, channels)

    def forward(self, x):
        weight = torch.sigmoid(self.spread(torch.relu(self.squeeze(x.mean(dim=(-2, -1))))))
        return x * weight[:, :, None, None]


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, HIDDEN]

"""A state that fades by a learned factor, step after step."""

import torch
from torch import nn

BATCH = 8
STEPS = 64
FEATURES = 512


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.decay = nn.Parameter(torch.randn(features))

    def forward(self, x):
        keep = torch.sigmoid(self.decay)
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = keep * state + (1.0 - keep) * x[:, step]
            states.append(state)
        return torch.stack(states, dim=1)


def get_inputs():
    return [torch.randn(BATCH, STEPS, FEATURES)]


def get_init_inputs():
    return [FEATURES]

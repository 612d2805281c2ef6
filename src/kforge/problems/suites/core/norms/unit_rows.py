"""Every row is scaled to length one."""

import torch
from torch import nn

ROWS = 2048
FEATURES = 768


class Model(nn.Module):
    def forward(self, x):
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12)


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return []

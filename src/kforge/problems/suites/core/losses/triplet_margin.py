"""An anchor should be nearer to its positive than to its negative, by a margin."""

import torch
from torch import nn

ROWS = 1024
FEATURES = 256


class Model(nn.Module):
    def forward(self, anchor, positive, negative):
        near = (anchor - positive).pow(2).sum(dim=-1).sqrt()
        far = (anchor - negative).pow(2).sum(dim=-1).sqrt()
        return torch.relu(near - far + 1.0)


def get_inputs():
    return [torch.randn(ROWS, FEATURES), torch.randn(ROWS, FEATURES), torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return []

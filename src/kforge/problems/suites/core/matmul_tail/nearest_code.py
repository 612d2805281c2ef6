"""Which entry of a code book is nearest to every vector."""

import torch
from torch import nn

ROWS = 1024
FEATURES = 64
CODES = 512


class Model(nn.Module):
    def __init__(self, codes, features):
        super().__init__()
        self.book = nn.Parameter(torch.randn(codes, features))

    def forward(self, x):
        distance = (x**2).sum(dim=1, keepdim=True) - 2.0 * x @ self.book.t() + (self.book**2).sum(dim=1)
        return distance.argmin(dim=1)


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [CODES, FEATURES]

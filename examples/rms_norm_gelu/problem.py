"""Root-mean-square normalisation with a learned gain, followed by a GELU."""

import torch
from torch import nn

ROWS = 512
FEATURES = 1024


class Model(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        normed = x * torch.rsqrt(mean_square + self.eps) * self.weight
        return nn.functional.gelu(normed, approximate="tanh")


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]

"""A block of an image model: group normalisation, then SiLU."""

import torch
from torch import nn

BATCH = 8
CHANNELS = 64
SIZE = 48
GROUPS = 8


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, CHANNELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []

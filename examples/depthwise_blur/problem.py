"""A mobile block: a depthwise 3x3 convolution, its bias, and hardswish."""

import torch
from torch import nn

BATCH = 4
CHANNELS = 64
SIZE = 64


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blur = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.hardswish(self.blur(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []

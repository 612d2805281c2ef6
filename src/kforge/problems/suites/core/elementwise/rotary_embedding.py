"""Pairs of features are rotated by an angle that grows with the position."""

import torch
from torch import nn

BATCH = 4
HEADS = 8
TOKENS = 128
WIDTH = 64


class Model(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        step = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angle = torch.outer(torch.arange(tokens).float(), step)
        self.register_buffer("cosine", angle.cos())
        self.register_buffer("sine", angle.sin())

    def forward(self, x):
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * self.cosine - odd * self.sine, even * self.sine + odd * self.cosine), dim=-1)
        return turned.flatten(-2)


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, WIDTH)]


def get_init_inputs():
    return [TOKENS, WIDTH]

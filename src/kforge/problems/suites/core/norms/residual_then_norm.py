"""The residual stream is updated, then normalised; both are needed afterwards."""

import torch
from torch import nn

BATCH = 8
TOKENS = 128
FEATURES = 512


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, stream, update):
        stream = stream + update
        scale = torch.rsqrt(stream.square().mean(dim=-1, keepdim=True) + 1e-5)
        return stream, stream * scale * self.gain


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES), torch.randn(BATCH, TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES]

"""A whole layer: norm, attention, norm, feed-forward."""

import torch
from torch import nn

BATCH = 4
TOKENS = 96
FEATURES = 192
HEADS = 4


class Model(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            features, heads, dim_feedforward=4 * features, dropout=0.0, batch_first=True, norm_first=True
        )

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HEADS]

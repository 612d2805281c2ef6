"""Projections in, causal attention, a projection out."""

import torch
from torch import nn

BATCH = 4
TOKENS = 96
FEATURES = 192
HEADS = 4


class Model(nn.Module):
    def __init__(self, features, heads):
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(features, 3 * features)
        self.outward = nn.Linear(features, features)

    def forward(self, x):
        batch, tokens, features = x.shape
        query, key, value = self.inward(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outward(mixed.transpose(1, 2).reshape(batch, tokens, features))


def get_inputs():
    return [torch.randn(BATCH, TOKENS, FEATURES)]


def get_init_inputs():
    return [FEATURES, HEADS]

"""One new query against a long cache of keys and values."""

import torch
from torch import nn

BATCH = 4
HEADS = 8
CACHE = 1024
WIDTH = 48


class Model(nn.Module):
    def forward(self, query, key, value):
        return nn.functional.scaled_dot_product_attention(query, key, value)


def get_inputs():
    return [
        torch.randn(BATCH, HEADS, 1, WIDTH),
        torch.randn(BATCH, HEADS, CACHE, WIDTH),
        torch.randn(BATCH, HEADS, CACHE, WIDTH),
    ]


def get_init_inputs():
    return []

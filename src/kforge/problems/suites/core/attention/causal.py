"""Causal attention with the mask applied to all of the scores."""

import torch
from torch import nn

BATCH = 2
HEADS = 4
TOKENS = 160
WIDTH = 48


class Model(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.register_buffer("future", torch.ones(tokens, tokens, dtype=torch.bool).triu(1))

    def forward(self, query, key, value):
        scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
        scores = scores.masked_fill(self.future, float("-inf"))
        return torch.softmax(scores, dim=-1) @ value


def get_inputs():
    return [
        torch.randn(BATCH, HEADS, TOKENS, WIDTH),
        torch.randn(BATCH, HEADS, TOKENS, WIDTH),
        torch.randn(BATCH, HEADS, TOKENS, WIDTH),
    ]


def get_init_inputs():
    return [TOKENS]

"""Scores are scaled, masked and normalised."""

import torch
from torch import nn

BATCH = 4
HEADS = 4
TOKENS = 160


class Model(nn.Module):
    def forward(self, scores, allowed):
        scores = (0.125 * scores).masked_fill(~allowed, float("-inf"))
        return torch.softmax(scores, dim=-1)


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, TOKENS), torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()]


def get_init_inputs():
    return []

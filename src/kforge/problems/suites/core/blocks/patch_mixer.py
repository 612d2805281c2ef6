"""Patches are mixed along positions, then along features."""

import torch
from torch import nn

BATCH = 4
PATCHES = 64
FEATURES = 128


class Model(nn.Module):
    def __init__(self, patches, features):
        super().__init__()
        self.first_norm = nn.LayerNorm(features)
        self.positions = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.second_norm = nn.LayerNorm(features)
        self.features = nn.Sequential(nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features))

    def forward(self, x):
        x = x + self.positions(self.first_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.features(self.second_norm(x))


def get_inputs():
    return [torch.randn(BATCH, PATCHES, FEATURES)]


def get_init_inputs():
    return [PATCHES, FEATURES]

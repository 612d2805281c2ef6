"""Binary focal loss of every sample, summed over its labels."""

import torch
from torch import nn

ROWS = 2048
CLASSES = 96


class Model(nn.Module):
    def forward(self, logits, truth):
        plain = nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="none")
        chance = torch.exp(-plain)
        return ((1.0 - chance) ** 2 * plain).sum(dim=-1)


def get_inputs():
    return [3.0 * torch.randn(ROWS, CLASSES), (torch.rand(ROWS, CLASSES) < 0.3).float()]


def get_init_inputs():
    return []

"""Row-wise attention weights: scores are scaled, biased and normalised by a softmax."""

import torch
from torch import nn

ROWS = 512
COLUMNS = 1024


class Model(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))
        self.scale = columns**-0.5

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores * self.scale + self.bias, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]

import torch
from torch import nn

ROWS = 512
INPUTS = 512
OUTPUTS = 512


class Model(nn.Module):
    """A linear layer, scaled and cut off below zero."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.randn(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x) * self.scale)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, INPUTS)]


def get_init_inputs() -> list[int]:
    return [INPUTS, OUTPUTS]

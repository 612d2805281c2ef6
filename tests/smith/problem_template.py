"""The source of a small problem, with gaps for its parameters, its inputs and its `forward`."""

from __future__ import annotations

PROBLEM = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{init}

    def forward(self, {names}):
        return {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
"""`init` is whole lines of the constructor, indented by eight spaces; the other gaps are lists with commas."""

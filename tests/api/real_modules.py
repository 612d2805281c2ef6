"""Modules as users have them, each with example inputs, for the tests of `kforge.forge` and of docs/python-api.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable


class Attention(nn.Module):
    """Causal attention of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = self.project(x).view(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(rows, length, width))


class Nested(nn.Module):
    """Blocks in a list, each with a sequence inside."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class Tied(nn.Module):
    """An embedding whose weights project back as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embedding(tokens)))


class Rotary(nn.Module):
    """Buffers of both kinds, two inputs and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(24.0), 0.5 ** torch.arange(8.0))
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._turned(q), self._turned(k)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * self.cosines - b * self.sines, a * self.sines + b * self.cosines], dim=-1)


class Gate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return a * torch.sigmoid(b)


MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[], list[Any]]]] = {
    "linear": (lambda: nn.Linear(48, 32), lambda: [torch.randn(16, 48)]),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        lambda: [torch.randn(2, 3, 16, 16)],
    ),
    "norm": (lambda: nn.GroupNorm(4, 16), lambda: [torch.randn(4, 16, 12)]),
    "attention": (lambda: Attention(32, 4), lambda: [torch.randn(2, 24, 32)]),
    "sequence": (
        lambda: nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256)),
        lambda: [torch.randn(8, 64)],
    ),
    "nested": (Nested, lambda: [torch.randn(8, 32)]),
    "tied weights and indices": (Tied, lambda: [torch.randint(50, (4, 6))]),
    "buffers": (Rotary, lambda: [torch.randn(3, 24, 16), torch.randn(3, 24, 16)]),
    "no parameters": (Gate, lambda: [torch.randn(64, 64)]),
    "bfloat16": (
        lambda: nn.Sequential(nn.Linear(32, 32), nn.SiLU()).to(torch.bfloat16),
        lambda: [torch.randn(16, 32).to(torch.bfloat16)],
    ),
}

"""Rows of numbers for argmax and argmin: with NaN and infinities in every order, and without."""

from __future__ import annotations

import itertools

import torch

PATTERNS = [
    {},
    *({place: value} for value in ("nan", "inf", "-inf") for place in (0, 0.5, 1)),
    *(
        dict(zip((0.2, 0.5, 0.7), values, strict=True))
        for values in itertools.product(("nan", "inf", "-inf"), repeat=3)
        if "nan" in values
    ),
]
"""The special values of each row, by their place between the first element (0) and the last (1)."""


def rows_with_nan(length: int) -> torch.Tensor:
    """Return a row for each pattern among numbers that often are equal, and rows of a single special value."""
    numbers = torch.randn(len(PATTERNS), length, generator=torch.Generator().manual_seed(0)).mul(3).round()
    for row, pattern in zip(numbers, PATTERNS, strict=True):
        for place, value in pattern.items():
            row[round(place * (length - 1))] = float(value)
    whole = torch.tensor([float(value) for value in ("nan", "inf", "-inf")])[:, None].expand(3, length)
    return torch.cat((numbers, whole))

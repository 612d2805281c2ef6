"""Judges elements of an output that are far smaller than the others, all over it. (torch)

A module may write minus a billion, or the smallest number of a dtype, into half of its output (a mask). Then every row,
run and slice has such numbers, and beside them any error of the others is small. So where the magnitudes of an output
have a gap of `GAP` powers of two, the elements below the gap are judged together, on their own scale. Without a gap
they are not: in most outputs a few elements are small by chance, and exact to the scale of their neighbours only.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from functools import lru_cache

import torch

from kforge.evaluation.constants import LEAST_SCALE

GAP = 10
"""Length of a gap: this many neighbouring powers of two hold hardly an element."""
HARDLY, LEAST_SHARE = 1e-3, 0.02
"""Share of the elements that one power of two in a gap may hold, and the least share that is judged below a gap."""
LEAST_ELEMENTS = 16
SAMPLED = 1 << 14
"""Most elements that are examined, at random positions where there are more."""
_LOWEST = math.frexp(LEAST_SCALE)[1]


@dataclass(frozen=True)
class Magnitude:
    """The elements between two gaps."""

    index: torch.Tensor
    """Their positions in the flat output, as far as they were examined."""
    exact: torch.Tensor
    norm: torch.Tensor

    def __len__(self) -> int:
        return 1

    def errors(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the error of all of them together; the caller limits it to one."""
        apart: torch.Tensor = torch.linalg.vector_norm(flat[self.index].double() - self.exact)
        return (apart / self.norm).view(1)

    def name(self, part: int) -> str:
        del part
        scale = float(self.norm) / math.sqrt(len(self.exact))
        return f"elements of about {scale:.2g}, all over the output, beside far larger ones"


def small_magnitudes(flat: torch.Tensor, small: float, sample: int) -> list[Magnitude]:
    """Return the elements below each gap, where their scale is below `small`; `sample` numbers the random positions."""
    if len(flat) < 2 * LEAST_ELEMENTS:
        return []
    index = _places(len(flat), sample).to(flat.device)
    exact = flat.index_select(0, index).double()
    powers = torch.frexp(exact.abs().clamp(min=LEAST_SCALE)).exponent.long() - _LOWEST
    found = []
    for low, high in _below_gaps(torch.bincount(powers.cpu()).tolist(), len(exact)):
        among = (powers >= low) & (powers < high)
        norm = torch.linalg.vector_norm(exact[among])
        if float(norm) < small * math.sqrt(int(among.sum())):
            found.append(Magnitude(index[among], exact[among], norm))
    return found


@lru_cache(maxsize=64)
def _places(count: int, sample: int) -> torch.Tensor:
    """Return the positions of the elements that are examined."""
    del sample  # part of the cache key only
    if count <= SAMPLED:
        return torch.arange(count)
    return torch.randint(count, (SAMPLED,), generator=torch.Generator().manual_seed(secrets.randbits(62)))


def _below_gaps(counts: list[int], total: int) -> list[tuple[int, int]]:
    """Return the first and last (exclusive) power of two of the elements below each gap; zeros do not count."""
    found, start, empty = [], 1, 0
    for power in range(1, len(counts)):
        empty = empty + 1 if counts[power] <= HARDLY * total else 0
        if empty == GAP:
            end = power - GAP + 1
            if sum(counts[start:end]) >= max(LEAST_ELEMENTS, LEAST_SHARE * total):
                found.append((start, end))
            start = power + 1
        elif empty > GAP:
            start = power + 1
    return found

"""Judges elements that are far smaller than all others of an output, wherever they are. (torch)

A module may write minus a billion, or the smallest number of a dtype, into half of its output (a mask). Then every row,
run and slice contains such numbers, and errors of the other elements are small beside them. So if the magnitudes of an
output have a gap of `GAP` powers of two, the elements below the gap are judged together on their own scale. Without a
gap, small elements are not judged separately: in most outputs some elements are small by chance.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from functools import lru_cache

import torch

from kforge.evaluation.constants import LEAST_SCALE

GAP = 10
"""The magnitudes of an output have a gap if this many neighbouring powers of two hold hardly any elements."""
MOST_SHARE_IN_GAP, LEAST_SHARE_BELOW_GAP = 1e-3, 0.02
"""Shares of all elements of an output. MOST_SHARE_IN_GAP: most elements that one power of two inside a gap may hold.
LEAST_SHARE_BELOW_GAP: fewest elements below a gap that are judged."""
LEAST_ELEMENTS = 16
"""Fewest elements below a gap in the magnitudes of an output that are judged."""
SAMPLED = 1 << 14
"""Most elements of an output that are examined for gaps. If there are more, they are chosen at random."""
_LOWEST = math.frexp(LEAST_SCALE)[1]
"""Exponent of the smallest scale by which outputs are judged."""


@dataclass(frozen=True)
class Magnitude:
    """The elements of an output whose magnitudes lie below one gap and above the next."""

    index: torch.Tensor
    """Positions in the flattened output of those elements of this magnitude that were examined."""
    exact: torch.Tensor
    norm: torch.Tensor

    def __len__(self) -> int:
        return 1

    def errors(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the error of all elements of this magnitude together. The caller limits it to 1."""
        apart: torch.Tensor = torch.linalg.vector_norm(flat[self.index].double() - self.exact)
        return (apart / self.norm).view(1)

    def name(self, part: int) -> str:
        """Return the name of the elements of this magnitude for messages."""
        del part
        scale = float(self.norm) / math.sqrt(len(self.exact))
        return f"elements of about {scale:.2g}, all over the output, beside far larger ones"


def small_magnitudes(flat: torch.Tensor, small: float, sample: int) -> list[Magnitude]:
    """Return the elements below each gap whose scale is below `small`. `sample` selects one of the random samples."""
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
    """Return the positions of the elements that are examined for gaps."""
    del sample  # part of the cache key only
    if count <= SAMPLED:
        return torch.arange(count)
    return torch.randint(count, (SAMPLED,), generator=torch.Generator().manual_seed(secrets.randbits(62)))


def _below_gaps(counts: list[int], total: int) -> list[tuple[int, int]]:
    """Return pairs of the first power of two, and the one after the last, of the elements below each gap. Zeros do not
    count."""
    found, start, empty = [], 1, 0
    for power in range(1, len(counts)):
        empty = empty + 1 if counts[power] <= MOST_SHARE_IN_GAP * total else 0
        if empty == GAP:
            end = power - GAP + 1
            if sum(counts[start:end]) >= max(LEAST_ELEMENTS, LEAST_SHARE_BELOW_GAP * total):
                found.append((start, end))
            start = power + 1
        elif empty > GAP:
            start = power + 1
    return found

"""Fingerprints of tensors under secret keys, to detect changed memory without keeping a copy. (torch)

Every word of a tensor is mixed with its position and with keys that no worker knows, and the results are added up
modulo 2**64. A program that changes its inputs or an earlier output would have to guess the keys to keep the sum.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import torch

from kforge.problems.tensors import tensors_in

CHUNK, DEVICE_CHUNK = 1 << 18, 1 << 25
"""Words that are processed at a time: CHUNK on a host, so that temporaries stay in its cache, DEVICE_CHUNK on a
device."""
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""Integer dtypes by size in bytes."""


class Fingerprint(NamedTuple):
    """The fingerprint of one tensor: dtype, shape, and a sum over its bytes under secret keys."""

    dtype: torch.dtype
    shape: torch.Size
    total: int


class Fingerprints:
    """Computes fingerprints under its own random keys. Fingerprints from two objects of this class cannot be
    compared."""

    def __init__(self) -> None:
        self._keys = tuple(secrets.randbits(62) | 1 for _ in range(4))

    def of(self, value: Any) -> list[Fingerprint]:
        """Return a fingerprint for each tensor of a nested value."""
        return [Fingerprint(tensor.dtype, tensor.shape, self._total(tensor)) for tensor in tensors_in(value)]

    def _total(self, tensor: torch.Tensor) -> int:
        """Return the sum over the bytes of one tensor under the secret keys."""
        plain = tensor.detach().resolve_conj().resolve_neg()
        chunk = CHUNK if plain.is_cpu else DEVICE_CHUNK
        # a tensor that is not contiguous is copied a part at a time, because it may fill much of the memory
        rows = max(1, chunk // max(1, plain[0].numel())) if plain.dim() and plain.numel() else 0
        parts = (plain,) if plain.is_contiguous() or not rows else torch.split(plain, rows)
        total = place = 0
        for part in parts:
            for words in torch.split(_as_words(part), chunk):
                total += self._mixed(words, place)
                place += len(words)
        return total % 2**64

    def _mixed(self, words: torch.Tensor, place: int) -> int:
        """Mix each word with its position and the secret keys, and return the sum, which may wrap around 64 bits.

        `place` is the position of the first word in the tensor.
        """
        first, second, third, fourth = self._keys
        mixed = torch.arange(place, place + len(words), device=words.device).mul_(first).add_(second)
        mixed.bitwise_xor_(words).mul_(third)
        mixed.bitwise_xor_(mixed >> 31).mul_(fourth)
        return int(mixed.bitwise_xor_(mixed >> 29).sum())


def _as_words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor as the longest words that its size and alignment allow."""
    flat = tensor.contiguous().flatten()
    places = (flat.nbytes, flat.storage_offset() * flat.element_size())
    word = next(dtype for size, dtype in _WORDS.items() if not any(place % size for place in places))
    return flat.view(word)

"""Adds the rounding error of fast convolution algorithms, on the scale of the largest value of an image. (torch)

A Fourier transform, or a tile of Winograd's algorithm, is exact to the scale of the largest value in it. The effect on
an output, after everything that a module does to its convolutions, is found by running the module with this error added
to every convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.evaluation.constants import FAST_UNITS

CONVOLUTIONS = frozenset({"aten::convolution", "aten::_convolution", "aten::convolution_overrideable"})
FAST_KERNEL = 3
"""Size of the smallest kernel that fast algorithms (Winograd's, by Fourier transform) are used for."""


def is_fast(func: Any, args: Any) -> bool:
    """Return whether this call is a convolution for which fast algorithms exist."""
    return func._schema.name in CONVOLUTIONS and max(args[1].shape[2:], default=0) >= FAST_KERNEL


class RoundedConvolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds a random error to every convolution that runs inside it."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Without this the first call inside it would import dynamo."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not is_fast(func, args) or not result.is_floating_point():
            return result
        generator = torch.Generator(result.device).manual_seed(self._seed)
        noise = torch.randn(result.shape, generator=generator, device=result.device, dtype=result.dtype)
        image = tuple(range(result.dim() - args[1].dim() + 2, result.dim()))
        largest = result.abs().amax(dim=image, keepdim=True)
        return torch.addcmul(result, noise, largest, value=FAST_UNITS * torch.finfo(result.dtype).eps)

"""Adds the rounding error of fast convolution algorithms to a module's convolutions. (torch)

A Fourier transform, or a tile of Winograd's algorithm, is only exact relative to the largest value in it. To find the
effect on a module's output, the module is run with such an error added to every convolution.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.evaluation.constants import FAST_UNITS

CONVOLUTIONS = frozenset({"aten::convolution", "aten::_convolution", "aten::convolution_overrideable"})
"""Names of torch's convolution operators."""
FAST_KERNEL = 3
"""Smallest kernel size for which fast algorithms (Winograd, Fourier transform) are used."""


def is_fast(func: Any, args: Any) -> bool:
    """Return whether this call is a convolution for which fast algorithms exist."""
    return func._schema.name in CONVOLUTIONS and max(args[1].shape[2:], default=0) >= FAST_KERNEL


class RoundedConvolutions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of torch that adds a random error to every convolution inside its `with` block."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that the first call in this mode does not import dynamo."""
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

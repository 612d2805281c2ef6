"""Detects whether a problem's own code has changed torch in this process. (torch)

The user trusts a problem, but it may still affect how the next one is judged, for example by a default dtype, a flag or
a replaced function. A referee whose torch was changed does not judge another problem.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from typing import Any

import torch
from torch import nn

from kforge.problems.tensors import HOST

_WATCHED: tuple[Any, ...] = (
    torch, torch.Tensor, torch.nn, nn.Module, nn.functional, nn.init, torch.autograd, torch.fft, torch.linalg,
    torch.special, torch.random, torch.ops.aten, builtins,
)  # fmt: skip
"""Modules and classes in which a replaced function would affect other problems."""


class TorchSnapshot:
    """The state of torch at one moment: its flags and functions."""

    def __init__(self) -> None:
        self._flags = _flags()
        # the values themselves, not their ids: an object that is kept here cannot be freed and its id reused
        self._names = [(place, _names(place)) for place in _WATCHED]

    def holds(self) -> bool:
        """Return whether torch is still in this state. Added names do not matter."""
        return _flags() == self._flags and all(_are_there(before, _names(place)) for place, before in self._names)


def _names(place: Any) -> dict[str, Any]:
    """Return all names of a module or class with their values. For a class this includes inherited names."""
    if isinstance(place, type):
        return {name: inspect.getattr_static(place, name) for name in dir(place)}
    return dict(vars(place))


def _are_there(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return all(name in now and now[name] is value for name, value in before.items())


def _flags() -> tuple[Any, ...]:
    """Return torch's global settings."""
    backends = torch.backends
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        tuple(torch.is_autocast_enabled(device) for device in _devices()),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.is_anomaly_enabled(),
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        (backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic, backends.cudnn.allow_tf32),
        tuple(sys.path),
    )


def _devices() -> tuple[str, ...]:
    accelerator = torch.accelerator.current_accelerator()
    return (HOST.type,) if accelerator is None else (HOST.type, accelerator.type)

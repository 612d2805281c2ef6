"""Finds out what a module keeps from one call to the next, and can restore it. (torch)

Parameters and buffers are in the state dict, and a program must update them in the same way. A plain attribute, such as
a list that is appended to, need not exist in a program, but its effect on later calls must be the same.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

_OF_TORCH = frozenset(nn.Module().__dict__)
"""Names of the attributes that every `nn.Module` has."""
MOST_ITEMS = 1000
"""Most entries of a module's list or dict that are examined for changes."""


def marks_of(module: nn.Module) -> list[Any]:
    """Return a value that differs before and after a call if the call changes the module's state."""
    marks: list[Any] = [(id(tensor), written(tensor)) for tensor in (*module.parameters(), *module.buffers())]
    for part in module.modules():
        marks += [(name, _mark(value)) for name, value in _plain(part).items()]
    return marks


def written(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written, as torch counts it; 0 for inference tensors, which torch does not
    count."""
    return 0 if tensor.is_inference() else tensor._version


def _mark(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return id(value), written(value)
        case list() | tuple():
            return len(value), [_mark(item) for item in value[:MOST_ITEMS]]
        case dict():
            return len(value), [(str(key), _mark(item)) for key, item in list(value.items())[:MOST_ITEMS]]
        case int() | float() | str() | None:
            return value
    return id(value)


class Moment:
    """A copy of the state of some modules at one moment, to which they can be restored once."""

    def __init__(self, *modules: nn.Module, parameters: bool) -> None:
        """With `parameters`, parameters are copied, too. They are often large, so use it only if calls change them."""
        self._parts = [part for module in modules for part in module.modules()]
        self._plain = copy.deepcopy([_plain(part) for part in self._parts])
        self._buffers = [{name: _copied(value) for name, value in part._buffers.items()} for part in self._parts]
        changing = [parameter for module in modules for parameter in module.parameters()] if parameters else []
        self._parameters = [(parameter, parameter.detach().clone()) for parameter in changing]

    def restore(self) -> None:
        """Restore the modules to the copied state."""
        for part, plain, buffers in zip(self._parts, self._plain, self._buffers, strict=True):
            for name in _plain(part):
                del part.__dict__[name]
            part.__dict__.update(plain)
            part._buffers.update(buffers)
        with torch.no_grad():
            for parameter, value in self._parameters:
                parameter.copy_(value)


def _plain(part: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module that its author added."""
    return {name: value for name, value in part.__dict__.items() if name not in _OF_TORCH}


def _copied(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()

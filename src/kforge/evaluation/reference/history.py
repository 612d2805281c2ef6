"""Tracks what a module keeps from one call to the next: state that it updates, registered or not. (torch)

Parameters and buffers are in its state dict, and a program must update them in the same way. A plain attribute (a cache
that is appended to, a counter) need not exist in a program, but its effect on later calls must be the same.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

_OF_TORCH = frozenset(nn.Module().__dict__)
MOST_ITEMS = 1000
"""Largest number of entries of a list or dict that are examined."""


def marks_of(module: nn.Module) -> list[Any]:
    """Return marks of a module's state: a call has changed whatever differs between the marks before and after it."""
    marks: list[Any] = [(id(tensor), written(tensor)) for tensor in (*module.parameters(), *module.buffers())]
    for part in module.modules():
        marks += [(name, _mark(value)) for name, value in _plain(part).items()]
    return marks


def written(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to, as torch counts; torch does not count for inference tensors."""
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
    """A copy of the modules' state, to which they can be set back once."""

    def __init__(self, *modules: nn.Module, parameters: bool) -> None:
        """`parameters`: calls change them, too. They are often large, so they are copied only in that case."""
        self._parts = [part for module in modules for part in module.modules()]
        self._plain = copy.deepcopy([_plain(part) for part in self._parts])
        self._buffers = [{name: _copied(value) for name, value in part._buffers.items()} for part in self._parts]
        changing = [parameter for module in modules for parameter in module.parameters()] if parameters else []
        self._parameters = [(parameter, parameter.detach().clone()) for parameter in changing]

    def restore(self) -> None:
        for part, plain, buffers in zip(self._parts, self._plain, self._buffers, strict=True):
            for name in _plain(part):
                del part.__dict__[name]
            part.__dict__.update(plain)
            part._buffers.update(buffers)
        with torch.no_grad():
            for parameter, value in self._parameters:
                parameter.copy_(value)


def _plain(part: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module that are its own, and not torch's."""
    return {name: value for name, value in part.__dict__.items() if name not in _OF_TORCH}


def _copied(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().clone()

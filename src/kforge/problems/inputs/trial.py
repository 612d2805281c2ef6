"""Tries on the host which inputs a module accepts. (torch)

On the host an index out of bounds is only an exception. On a device it would break the device's context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from kforge.problems.randomness import seeded
from kforge.problems.tensors import HOST, cloned, tensors_in

if TYPE_CHECKING:
    from torch import nn

    from kforge.problems.instance import Instance

INDEXING = ("__getitem__", "__setitem__", "index_put", "index_put_", "take")
"""Names of torch functions that take indices below zero, which count from the end."""
SEED = 31
"""Seed of the module that is tried. It need not be secret, because this tests only the problem."""


def on_host(instance: Instance, inputs: list[Any]) -> tuple[nn.Module, list[Any]]:
    """Return a new module and its inputs on the host, where an index out of bounds is only an exception."""
    with seeded(SEED):
        model = instance.make_model().to(HOST)
    return model, pytree.tree_map(lambda leaf: leaf.to(HOST) if isinstance(leaf, Tensor) else leaf, inputs)


def output_shapes(model: nn.Module, inputs: list[Any]) -> list[torch.Size] | None:
    """Return the shapes of the outputs for these inputs; None if the module raises or an output is not finite.

    The module may write to the inputs.
    """
    found = finite_outputs(model, inputs)
    return None if found is None else [output.shape for output in found]


def finite_outputs(model: nn.Module, inputs: list[Any]) -> list[Tensor] | None:
    """Return the tensors of the output for these inputs; None if the module raises or one of them is not finite.

    The module may write to the inputs.
    """
    try:
        with torch.no_grad():
            outputs = tensors_in(model(*inputs))
    except Exception:  # any error means that the module does not accept them
        return None
    return outputs if all(bool(each.isfinite().all()) for each in outputs) else None


class _Indices(TorchFunctionMode):
    """A mode of torch that notes whether a tensor is indexed by integers below zero."""

    def __init__(self) -> None:
        super().__init__()
        self.negative = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in INDEXING:
            given = [each for each in tensors_in([*args[1:2], kwargs]) if each.numel()]
            self.negative |= any(each.dtype in (torch.int64, torch.int32) and int(each.min()) < 0 for each in given)
        return func(*args, **(kwargs or {}))


def makes_negative_indices(model: nn.Module, inputs: list[Any]) -> bool:
    """Return whether the module indexes a tensor with integers below zero for these inputs, or raises. It may write to
    the inputs."""
    indices = _Indices()
    try:
        with torch.no_grad(), indices:
            model(*inputs)
    except Exception:  # any error means that the module does not accept them
        return True
    return indices.negative


def with_first(inputs: list[Any], place: int, *numbers: int, last: bool = False) -> list[Any] | None:
    """Return a copy of the inputs with these numbers in the first elements of tensor number `place`; None if they
    cannot be written, as when the dtype has no such number. With `last`, one number is put into the last element."""
    inputs = cloned(inputs)
    try:
        flat = tensors_in(inputs)[place].view(-1)
        for index, number in enumerate(numbers[: flat.numel()]):
            flat[-1 if last else index].fill_(number)
    except (RuntimeError, OverflowError, TypeError):
        return None
    return inputs


def output_shapes_with(
    model: nn.Module, inputs: list[Any], place: int, *numbers: int, last: bool = False
) -> list[torch.Size] | None:
    """Return the shapes of the outputs that `outputs_with` returns for the same arguments."""
    found = outputs_with(model, inputs, place, *numbers, last=last)
    return None if found is None else [output.shape for output in found]


def outputs_with(
    model: nn.Module, inputs: list[Any], place: int, *numbers: int, last: bool = False
) -> list[Tensor] | None:
    """Return the outputs with these numbers in the first elements of tensor number `place`; None if the module does not
    accept them.

    With `last`, one number is put into the last element, which keeps ascending order.
    """
    other = with_first(inputs, place, *numbers, last=last)
    return None if other is None else finite_outputs(model, other)

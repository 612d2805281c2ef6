"""Tries on the host which inputs a module takes. (torch)

An index out of bounds is an error there, and ruins no device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kforge.problems.randomness import seeded
from kforge.problems.tensors import HOST, tensors_in

if TYPE_CHECKING:
    from torch import nn

    from kforge.problems.instance import Instance

SEED = 31
"""Of the module that is tried; that tests the problem, so it need not be secret."""


def on_host(instance: Instance, inputs: list[Any]) -> tuple[nn.Module, list[Any]]:
    """The module and its inputs where an index out of bounds is an error."""
    with seeded(SEED):
        model = instance.make_model().to(HOST)
    return model, pytree.tree_map(lambda leaf: leaf.to(HOST) if isinstance(leaf, Tensor) else leaf, inputs)


def output_shapes(model: nn.Module, inputs: list[Any]) -> list[torch.Size] | None:
    """Of the outputs for these inputs, which the module may write to; None where it raises or is not finite."""
    try:
        with torch.no_grad():
            outputs = tensors_in(model(*inputs))
    except Exception:  # whatever the module raises, it does not take them
        return None
    return [output.shape for output in outputs] if all(bool(each.isfinite().all()) for each in outputs) else None

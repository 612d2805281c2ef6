"""Tries on the host which inputs a module accepts. (torch)

There an index out of bounds is only an error, and ruins no device.
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
"""Seed of the module that is tried. It tests the problem, so it need not be secret."""


def on_host(instance: Instance, inputs: list[Any]) -> tuple[nn.Module, list[Any]]:
    """Return the module and its inputs on the host, where an index out of bounds is only an error."""
    with seeded(SEED):
        model = instance.make_model().to(HOST)
    return model, pytree.tree_map(lambda leaf: leaf.to(HOST) if isinstance(leaf, Tensor) else leaf, inputs)


def output_shapes(model: nn.Module, inputs: list[Any]) -> list[torch.Size] | None:
    """Return the shapes of the outputs for these inputs, which the module may write to; None where it raises or is not
    finite."""
    try:
        with torch.no_grad():
            outputs = tensors_in(model(*inputs))
    except Exception:  # any error means that the module does not accept them
        return None
    return [output.shape for output in outputs] if all(bool(each.isfinite().all()) for each in outputs) else None

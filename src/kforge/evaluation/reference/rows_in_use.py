"""Finds the rows of parameters that a call of the reference uses. A change of another row has no effect. (torch)"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from kforge.evaluation.reference.other_values import is_long, is_real_or_complex
from kforge.problems.tensors import cloned, tensors_in

if TYPE_CHECKING:
    from torch import Tensor

    from kforge.evaluation.reference.reference import Reference

TABLE_SHARE = 0.5
"""A parameter counts as a lookup table if a call uses less than this share of its rows."""


def rows_in_use(reference: Reference, inputs: list[Any]) -> dict[str, Tensor]:
    """Return by name the rows of long parameters on which the result for these inputs depends, found by gradients.

    A parameter without a known gradient is left out. Rows may be looked up by integer inputs, or by indices that the
    module computes.
    """
    model = copy.deepcopy(reference.model)
    named = {name: each for name, each in model.named_parameters() if is_real_or_complex(each)}
    long = {name: each for name, each in named.items() if is_long(each)}
    if not long or reference.instance.draws_random_numbers:
        return {}
    for name, each in named.items():
        each.requires_grad_(name in long)
    try:
        with torch.enable_grad():
            total = sum(_weighted_sum(each) for each in tensors_in(model(*cloned(inputs))) if each.requires_grad)
            gradients = torch.autograd.grad(total, list(long.values()), allow_unused=True)  # type: ignore[arg-type]
    except Exception:  # it cannot be differentiated, or does not take these inputs
        return {}
    return {name: _rows(each) for name, each in zip(long, gradients, strict=True) if each is not None}


def tables(reference: Reference, inputs: list[Any]) -> frozenset[str]:
    """Return the names of the parameters of which a call on these inputs uses less than TABLE_SHARE of the rows."""
    sizes = {name: len(each) for name, each in reference.model.named_parameters() if each.dim()}
    used = rows_in_use(reference, inputs)
    return frozenset(name for name, rows in used.items() if len(rows) < TABLE_SHARE * sizes[name])


def _weighted_sum(output: Tensor) -> Tensor:
    """Return a sum in which the elements have different weights, so that gradients do not cancel, as in the rows of a
    softmax.

    The weights are not random, because another thread may be drawing random inputs.
    """
    weights = (torch.arange(output.numel(), device=output.device) % 1009).cos().view(output.shape)
    return (torch.view_as_real(output).sum(-1) * weights if output.is_complex() else output * weights).sum()


def _rows(gradient: Tensor) -> Tensor:
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    return (dense != 0).reshape(len(dense), -1).any(1).nonzero().flatten()

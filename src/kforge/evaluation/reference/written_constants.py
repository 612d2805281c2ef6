"""Finds infinities and NaN that a reference writes on purpose, for example for the rows of a broken sensor. (torch)

A program that computes in a stable way is not judged where the reference overflows (`overflow.where_finite`). A number
that the reference writes as a constant is no overflow. So the reference is called again with a finite number in place
of each such constant. Where its result is then finite, the constant was the cause.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.problems.tensors import cloned

if TYPE_CHECKING:
    from kforge.evaluation.comparison.comparison import Truth
    from kforge.evaluation.reference.reference import Reference

WRITES = ("fill", "where", "full", "tensor", "setitem", "scatter", "pad")
"""Parts of the names of functions that write a constant. The limits of a clamp are not such constants."""
INSTEAD = 1.0
"""Finite number that is written in place of an infinity or NaN. It is finite in every dtype."""


class _Finite(TorchFunctionMode):
    """A mode of torch in which constants like `odd` are written as INSTEAD. `found`: whether there was one."""

    def __init__(self, odd: float) -> None:
        super().__init__()
        self._odd = odd
        self.found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(part in getattr(func, "__name__", "") for part in WRITES):
            args, kwargs = pytree.tree_map(self._instead, (args, kwargs))
        return func(*args, **kwargs)

    def _instead(self, value: Any) -> Any:
        if not isinstance(value, float) or not (value == self._odd or (math.isnan(value) and math.isnan(self._odd))):
            return value
        self.found = True
        return INSTEAD


def written_on_purpose(reference: Reference, truth: Truth) -> list[torch.Tensor | None]:
    """Return for each leaf of the output where torch's result is infinite or NaN only because the reference writes such
    a constant; None for leaves without such elements."""
    own = pytree.tree_leaves(truth.own)
    places: list[torch.Tensor | None] = [None] * len(own)
    for odd in (math.nan, math.inf, -math.inf):
        mode = _Finite(odd)
        try:
            with mode:
                result = reference.own_result(cloned(truth.inputs), copy.deepcopy(reference.model))
        except ProblemError:
            continue
        leaves = pytree.tree_leaves(result)
        if not mode.found or len(leaves) != len(own):
            continue
        for index, (ours, finite) in enumerate(zip(own, leaves, strict=True)):
            if isinstance(ours, torch.Tensor) and ours.is_floating_point() and ours.shape == finite.shape:
                like = ours.isnan() if math.isnan(odd) else ours == odd
                before = places[index]
                caused = like & finite.isfinite()
                places[index] = caused if before is None else before | caused
    return places

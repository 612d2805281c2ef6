"""Whether inputs beyond the given values tell anything about a program (`problems/inputs/other_ranges.py`). (torch)

There a program is judged for gross errors only, and for none where the reference is in doubt. The reference is sure of
its result where that is finite, where torch at the problem's dtype is as near to double precision as the floor asks
(or some units in the last place, which are more in bfloat16),
and where inputs moved by some units in their last place give the same: a sine of 1e15 says nothing, nor does a quotient
by a sum that cancels. Of minute inputs double precision may lose digits, too, beside one. So the result must be in
proportion to that for larger inputs.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Truth, compare, element_errors
from kforge.evaluation.constants import FLOORS
from kforge.evaluation.correctness.perturbation import shaken
from kforge.evaluation.reference.reference import in_double
from kforge.problems.tensors import spec, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from typing import Any

    from kforge.evaluation.reference.reference import Reference

GROSS = "half"
"""Precision whose floor a program must keep on such inputs (8e-3 of the output's scale in single precision)."""
STEADY = "tf32"
"""Precision whose floor (a quarter of GROSS's) torch itself must keep when these inputs are perturbed."""
SURE_UNITS, STEADY_UNITS = 8.0, 32.0
"""Smallest value of both floors, in units in the last place: a few steps in bfloat16 are off by more than its floor."""
MOVES = 2
"""Number of perturbed copies."""
LARGER, OUT_OF_PROPORTION = 2.0**30, 2e-3
"""Minute inputs are compared with inputs that are larger by the first factor. The result must be larger by that factor,
or its square, or be the same, except for the second number as a share of its scale."""
LARGEST_MINUTE = 2.0**-20
"""Inputs whose numbers are all smaller are minute ones."""
LOOKS_UP = ("index", "gather", "scatter", "embedding", "take", "bincount", "one_hot", "nll_loss", "cross_entropy",
            "multinomial", "bernoulli", "histc", "put")  # fmt: skip
"""Parts of the names of operators that end a device's context for values out of bounds."""


def is_sound(reference: Reference, truth: Truth, precision: str) -> bool:
    """Return whether the reference is so sure of this truth that a program which is far from it is wrong."""
    inside = reference.half_inside
    if not _near(truth, truth.own, precision, SURE_UNITS, inside):
        return False
    if reference.seed is not None or reference.has_history:  # another call would give another result
        return True
    model = copy.deepcopy(reference.model)
    try:
        return all(
            _near(truth, reference.own_result(shaken(truth.inputs, seed), model), STEADY, STEADY_UNITS, inside)
            for seed in range(MOVES)
        )
    except ProblemError:
        return False


def is_in_proportion(reference: Reference, truth: Truth) -> bool:
    """Return whether larger inputs show that the result for small inputs has lost no digits."""
    if not reference.exact_is_fp64 or reference.seed is not None or reference.has_history:
        return False
    larger = pytree.tree_map(_enlarged, in_double(truth.inputs))
    try:
        result = reference.own_result(larger, copy.deepcopy(reference.exact_model))
    except ProblemError:
        return False
    return all(map(_are_in_proportion, tensors_in(truth.exact), tensors_in(result)))


def _enlarged(leaf: Any) -> Any:
    """Return a tensor of minute numbers enlarged by LARGER; other tensors stay as given."""
    if not (isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel()):
        return leaf
    finite = leaf.abs().nan_to_num(posinf=0.0)
    return leaf * LARGER if float(finite.max()) < LARGEST_MINUTE else leaf


def _are_in_proportion(small: torch.Tensor, large: torch.Tensor) -> bool:
    if small.shape != large.shape or not small.is_floating_point():
        return torch.equal(small, large)
    if not small.numel():
        return True
    scale = float(torch.linalg.vector_norm(large)) / small.numel() ** 0.5
    apart = (float((large - small * LARGER**power).abs().max()) for power in range(3))
    return any(each <= OUT_OF_PROPORTION * scale for each in apart)


def _near(truth: Truth, result: Any, precision: str, units: float, inside: torch.dtype | None) -> bool:
    """Return whether a result is within the floor, or within `units` units in the last place, of the truth.

    The units are of the dtype to which the reference rounds internally (`inside`), where that is another one.
    """
    found = compare(Truth(truth.exact, _as(truth)), result, precision, "")
    if not isinstance(found, Mismatch):
        return True
    exact, own = tensors_in(truth.exact), tensors_in(result)
    return len(exact) == len(own) and all(map(partial(_is_within, precision, units, inside), exact, own))


def _is_within(
    precision: str, units: float, inside: torch.dtype | None, exact: torch.Tensor, result: torch.Tensor
) -> bool:
    if exact.shape != result.shape or not (result.is_floating_point() or result.is_complex()):
        return torch.equal(exact, result)
    if not result.numel():
        return True
    dtype = result.real.dtype if inside is None else inside
    floor = FLOORS[precision][spec(torch.empty(0, dtype=dtype)).dtype]
    worst = float(element_errors(exact, result).max())
    return worst <= max(floor, units * torch.finfo(dtype).eps)


def _as(truth: Truth) -> Any:
    """Return the truth at the dtypes of torch's own result, which then has no error."""

    def narrowed(exact: Any, own: Any) -> Any:
        both = isinstance(exact, torch.Tensor) and isinstance(own, torch.Tensor)
        return exact.to(own.dtype) if both else own

    return pytree.tree_map(narrowed, truth.exact, truth.own)


class _Names(TorchFunctionMode):
    """Collects the names of the torch functions that are called. (A dispatch mode would import torch's compiler
    first.)"""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        by_tensors = name in ("__getitem__", "__setitem__") and bool(tensors_in(args[1]))
        self.seen.add("index" if by_tensors else name)
        return func(*args, **(kwargs or {}))


def looks_up(reference: Reference, inputs: list[Any]) -> bool:
    """Return whether the reference has an operator that fails for values out of bounds. Raises ProblemError."""
    with _Names() as names:
        reference.own_result(inputs)
    # what a compiled function calls is not seen
    compiled = any(isinstance(each, torch.jit.ScriptModule) for each in reference.model.modules())
    return compiled or any(part in name for name in names.seen for part in LOOKS_UP)

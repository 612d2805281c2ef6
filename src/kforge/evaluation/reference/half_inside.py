"""Finds modules that round to half precision inside; their right result is computed without that rounding. (torch)

A module in single precision may multiply in bfloat16 and return single precision. Run in double precision, it would
round as well, and a program that rounds less would count as wrong. So its right result is computed with every cast to a
narrow dtype replaced by a cast to double precision. The module's own result differs from that by its rounding. So the
tolerance is as wide as the effect of that rounding on the output.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import element_errors
from kforge.evaluation.constants import ERROR_FACTOR, FLOORS
from kforge.problems.tensors import cloned, spec, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

HALVES = (torch.bfloat16, torch.float16)
"""Half-precision dtypes, the coarser one first."""
NARROW = (*HALVES, torch.float32)
"""Floating-point dtypes narrower than double precision."""
CASTS = ("bfloat16", "half", "float")
"""Methods of a tensor that cast it to a narrow floating-point dtype."""


class _Halves(TorchFunctionMode):
    """A mode of torch that collects the dtypes of new tensors. Views of existing tensors do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not _is_view(result, args):
            self.seen.add(result.dtype)
        return result


def _is_view(result: torch.Tensor, args: Any) -> bool:
    strided = [each for each in (result, *tensors_in(args)) if each.layout == torch.strided]
    memory, *others = [each.untyped_storage().data_ptr() for each in strided] or [0]
    return result.layout == torch.strided and memory in others


class InDouble(TorchFunctionMode):
    """A mode of torch that replaces every cast to a narrow floating-point dtype by one to double precision."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in CASTS and args and isinstance(args[0], torch.Tensor):
            return args[0].double()
        if name == "view":  # reinterprets the bits of a number
            return func(*args, **(kwargs or {}))
        args = tuple(_widened(each) for each in args)
        return func(*args, **{key: _widened(each) for key, each in (kwargs or {}).items()})


def _widened(argument: Any) -> Any:
    return torch.float64 if isinstance(argument, torch.dtype) and argument in NARROW else argument


def half_inside(
    run: Callable[[nn.Module, list[Any]], Any],
    model: nn.Module,
    exact_model: nn.Module,
    inputs: list[Any],
    given: Callable[[], list[Any]],
    widen: Callable[[list[Any]], list[Any]],
) -> torch.dtype | None:
    """Return the coarsest half-precision dtype to which a module rounds inside; None if its right result must be
    computed with its own rounding.

    None is returned if the module does not round, or if rounding changes more than digits (a floor, an index, the bits
    of a number). None is also returned for a module that is in half precision throughout: its inputs are, or its
    weights and an output. `inputs` show whether the module rounds. The results with and without rounding are compared
    on the inputs from `given`. `run` calls a module and raises ProblemError; `widen` converts inputs to double
    precision.
    """
    state = [*model.parameters(), *model.buffers()]
    if _are_of(HALVES, tensors_in(inputs)) or _are_of((torch.float64, torch.complex128), tensors_in(inputs), state):
        return None
    if not any(each.is_floating_point() for each in (*tensors_in(inputs), *state)):
        return None  # `Reference` recognizes a call in double precision only by tensors of float64
    try:
        copied, its_inputs = copy.deepcopy(model), cloned(inputs)
        with _Halves() as halves:
            result = run(copied, its_inputs)
        found = next((dtype for dtype in HALVES if dtype in halves.seen), None)
        if found is None or (_are_of(HALVES, state) and _are_of(HALVES, tensors_in(result))):
            return None
        drawn = given()
        own = run(copy.deepcopy(model), cloned(drawn))
        with InDouble():
            exact = run(copy.deepcopy(exact_model), widen(drawn))
    except ProblemError:
        return None
    limit = ERROR_FACTOR * FLOORS["strict"][spec(torch.empty(0, dtype=found)).dtype]
    (ours, structure), (theirs, other) = pytree.tree_flatten(own), pytree.tree_flatten(exact)
    near = structure == other and all(_is_near(one, two, limit) for one, two in zip(theirs, ours, strict=True))
    return found if near else None


def _are_of(dtypes: tuple[torch.dtype, ...], *tensors: list[torch.Tensor]) -> bool:
    """Return whether any of these tensors has one of these dtypes."""
    return any(each.dtype in dtypes for group in tensors for each in group)


def _is_near(exact: Any, own: Any, limit: float) -> bool:
    """Return whether two results agree within the limit; for integers, whether they are equal."""
    if not (isinstance(exact, torch.Tensor) and isinstance(own, torch.Tensor)):
        return bool(exact == own)
    if exact.shape != own.shape:
        return False
    if not own.is_floating_point():
        return torch.equal(exact, own)
    if exact.dtype != torch.float64 or not bool(torch.isfinite(exact).all()):
        return False
    return not own.numel() or float(element_errors(exact, own).max()) <= limit

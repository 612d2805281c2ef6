"""Finds inputs in ascending order that a module sorts itself: their order is then not structure. (torch)

Rows that are sorted in every draw stay so in all cases, since they may be the edges of bins. But a module that sorts
such an input itself, looks its values up one by one, or takes its extremes, accepts it in any order, and a program that
leaves out the sort, or takes the ends of rows for their extremes, is wrong for its user.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from kforge.problems.inputs.discrete import shuffled
from kforge.problems.randomness import seeded
from kforge.problems.tensors import cloned, tensors_in

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kforge.problems.inputs.structure import Structure
    from kforge.problems.instance import Instance

SORTS = ("sort", "argsort", "msort", "topk", "unique", "median", "nanmedian", "kthvalue", "quantile", "nanquantile",
         "mode")  # fmt: skip
"""Functions that sort, or that are trivial for sorted numbers."""
EXTREMES = ("max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "cummax", "cummin")
"""Functions that sorted numbers make trivial as well. Unlike a sort, they do not show that any order is accepted: the
module may also look numbers up in what it makes of the input."""
NEEDS_ORDER = {"searchsorted": (0, "sorted_sequence"), "bucketize": (1, "boundaries")}
"""Functions that look up numbers among sorted ones, and the argument that must be sorted."""
SEED = 31
"""Seed of the module that is called. It tests the problem, so it need not be secret."""


class _Handed(TorchFunctionMode):
    """Records the memory of the tensors that these functions get."""

    def __init__(self) -> None:
        super().__init__()
        self.sorted: set[int] = set()
        self.extremes: set[int] = set()
        self.needed: set[int] = set()
        """Memory of the tensors that must be in order."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in EXTREMES:
            self.extremes |= {tensor.data_ptr() for tensor in tensors_in([*args, *kwargs.values()])}
        elif name in SORTS or name in NEEDS_ORDER:
            handed = {tensor.data_ptr() for tensor in tensors_in([*args, *kwargs.values()])}
            position, word = NEEDS_ORDER.get(name, (len(args), ""))
            needed = {tensor.data_ptr() for tensor in tensors_in([*args[position : position + 1], kwargs.get(word)])}
            self.sorted |= handed
            self.needed |= needed
        return func(*args, **kwargs)


def sorted_inputs(instance: Instance, inputs: list[Any], structure: Structure) -> list[int]:
    """Return the positions of the tensors that are given in ascending order, though the module accepts any order.

    Raises ProblemError where the module cannot be made.
    """
    ordered = [place for place, leaf in enumerate(structure.leaves) if leaf.ascending]
    tensors = tensors_in(inputs := cloned(inputs))
    if not ordered or len(tensors) != len(structure.leaves):
        return []
    with seeded(SEED):
        model = instance.make_model()
    memory = [tensor.data_ptr() for tensor in tensors]
    try:
        with torch.no_grad(), seeded(SEED), _Handed() as handed:
            model(*inputs)
    except Exception:  # an error of the module is reported where its result is needed
        return []
    found = handed.sorted if handed.needed - set(memory) else handed.sorted | handed.extremes
    return [place for place in ordered if memory[place] in found - handed.needed]


def unordered(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, places: Collection[int]
) -> list[Any]:
    """Return the same inputs with these tensors shuffled within their rows."""
    leaves = [
        replace(leaf, ascending=False, total=None) if place in places else replace(leaf, kind="other")
        for place, leaf in enumerate(structure.leaves)
    ]
    return shuffled(inputs, generator, type(structure)(leaves))

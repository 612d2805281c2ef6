"""Inputs in ascending order, which a module sorts all the same: then their order is no structure. (torch)

Rows that are in order in every draw stay so in all cases, since they may be the edges of bins. But a module that sorts
such an input itself takes it in any order, and a program that leaves out the sort is wrong for its user.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from kforge.problems.discrete import shuffled
from kforge.problems.randomness import seeded
from kforge.problems.tensors import cloned, tensors_in

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kforge.problems.instance import Instance
    from kforge.problems.structure import Structure

SORTS = ("sort", "argsort", "msort", "topk")
NEEDS_ORDER = ("searchsorted", "bucketize")
SEED = 31
"""Of the module that is called; that tests the problem, so it need not be secret."""


class _Handed(TorchFunctionMode):
    """The memory of the tensors that functions of these names are handed, by name."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.places: dict[str, set[int]] = {name: set() for name in names}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self.places:
            handed = tensors_in([*args, *(kwargs or {}).values()])
            self.places[name].update(tensor.data_ptr() for tensor in handed)
        return func(*args, **(kwargs or {}))


def sorted_inputs(instance: Instance, inputs: list[Any], structure: Structure) -> list[int]:
    """Places of the tensors that are given in ascending order and that the module sorts as they are.

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
        with torch.no_grad(), seeded(SEED), _Handed(*SORTS, *NEEDS_ORDER) as handed:
            model(*inputs)
    except Exception:  # whatever the module raises, it is said where its result is asked for
        return []
    sorts = set().union(*(handed.places[name] for name in SORTS))
    needs = set().union(*(handed.places[name] for name in NEEDS_ORDER))
    return [place for place in ordered if memory[place] in sorts - needs]


def unordered(
    inputs: Sequence[Any], generator: torch.Generator, structure: Structure, places: Collection[int]
) -> list[Any]:
    """The same inputs with these tensors shuffled within their rows."""
    leaves = [
        replace(leaf, ascending=False, total=None) if place in places else replace(leaf, kind="other")
        for place, leaf in enumerate(structure.leaves)
    ]
    return shuffled(inputs, generator, type(structure)(leaves))

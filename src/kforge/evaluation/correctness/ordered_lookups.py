"""Finds inputs for which a reference searches unsorted numbers, so that its result is undefined. (torch)

A module may sort its boundaries itself, or get sorted ones. Most variations of such an input break the order. So this
module examines the numbers that a search like `torch.bucketize` actually gets.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

from kforge.errors import ProblemError
from kforge.problems.inputs.sorted_inputs import NEEDS_ORDER
from kforge.problems.tensors import cloned, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from kforge.evaluation.reference.reference import Reference


class _Lookups(TorchFunctionMode):
    """A mode of torch that notes whether numbers are searched (`found`), and whether they are unsorted."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False
        self.unsorted = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if name in NEEDS_ORDER:
            self.found = True
            position, word = NEEDS_ORDER[name]
            given = tensors_in([*args[position : position + 1], kwargs.get(word)])
            sorter = kwargs.get("sorter")
            searched = [each if sorter is None else each.gather(-1, sorter) for each in given]
            self.unsorted |= not all(map(_is_sorted, searched))
        return func(*args, **kwargs)


def _is_sorted(searched: torch.Tensor) -> bool:
    return searched.dim() == 0 or bool((searched[..., 1:] >= searched[..., :-1]).all())


class OrderedLookups:
    """Tells whether one reference searches sorted numbers."""

    def __init__(self, reference: Callable[[], Reference], sample: Callable[[], list[Any]]) -> None:
        """`reference` returns the reference with its present weights. `sample` returns inputs as given."""
        self._reference = reference
        self._sample = sample

    @cached_property
    def exist(self) -> bool:
        """Whether the reference searches numbers, and they are sorted for inputs as given."""
        seen = self._seen(self._sample())
        return seen.found and not seen.unsorted

    def are_undefined(self, inputs: list[Any]) -> bool:
        """Return whether the reference searches unsorted numbers for these inputs."""
        return self.exist and self._seen(inputs).unsorted

    def _seen(self, inputs: list[Any]) -> _Lookups:
        reference = self._reference()
        # an error of the reference is reported where its result is needed
        lookups = _Lookups()
        with lookups, suppress(ProblemError):
            reference.own_result(cloned(inputs), copy.deepcopy(reference.model))
        return lookups

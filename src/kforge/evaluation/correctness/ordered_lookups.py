"""Finds inputs for which a reference searches unsorted numbers, so that its result is undefined. (torch)

A module may sort its boundaries itself, or get sorted ones. Most variations of such an input break the order. So this
module examines the numbers that a search like `torch.bucketize` actually gets.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import ordered_like
from kforge.problems.inputs.sorted_inputs import NEEDS_ORDER
from kforge.problems.tensors import cloned, same, tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.comparison.comparison import Truth
    from kforge.evaluation.reference.reference import Reference


class Lookups(TorchFunctionMode):
    """A mode of torch that watches searches like `torch.bucketize`, which need sorted numbers.

    `found`: whether there was such a search. `unsorted`: whether one of them searched in unsorted numbers.
    """

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


class _Mirrored(TorchFunctionMode):
    """A mode of torch that changes the results of all searches, by mirroring them within their range.

    `all_equal`: whether the results of one search were all equal, so that they could not be changed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.all_equal = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return pytree.tree_map(self._mirrored, result) if getattr(func, "__name__", "") in NEEDS_ORDER else result

    def _mirrored(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.numel():
            return leaf
        low, high = leaf.aminmax()
        self.all_equal |= bool(low == high)
        return low + high - leaf  # within the same range, so that it can be used as an index


def _is_sorted(searched: torch.Tensor) -> bool:
    return searched.dim() == 0 or bool((searched[..., 1:] >= searched[..., :-1]).all())


class OrderedLookups:
    """Finds out whether one reference searches sorted numbers, and which outputs depend on unsorted ones."""

    def __init__(self, reference: Callable[[], Reference], sample: Callable[[], list[Any]]) -> None:
        """`reference` returns the reference with its present weights. `sample` returns inputs as given."""
        self._reference = reference
        self._sample = sample

    @property
    def found(self) -> bool:
        """Whether the reference searches numbers for inputs as given."""
        return self._as_given.found

    @property
    def exist(self) -> bool:
        """Whether the reference searches numbers, and they are sorted for inputs as given."""
        return self._as_given.found and not self._as_given.unsorted

    @cached_property
    def _as_given(self) -> Lookups:
        return self._seen(self._sample())

    def are_undefined(self, inputs: list[Any]) -> bool:
        """Return whether the reference searches unsorted numbers for these inputs."""
        return self.exist and self._seen(inputs).unsorted

    def spared(self, truth: Truth, output: Any) -> Any | None:
        """Return the output with torch's own tensors in place of those that depend on a search among unsorted numbers.

        Returns None if the reference searches no unsorted numbers for these inputs.
        """
        if not self.are_undefined(truth.inputs):
            return None
        leaves, form = pytree.tree_flatten(ordered_like(truth.own, output))
        own = pytree.tree_leaves(truth.own)
        changed = self._leaves_with_other_results(truth.inputs)
        if changed is None or not len(changed) == len(own) == len(leaves):
            return truth.own
        for index, (ours, other) in enumerate(zip(own, changed, strict=True)):
            if not same(ours, other):
                leaves[index] = ours
        return pytree.tree_unflatten(leaves, form)

    def _leaves_with_other_results(self, inputs: list[Any]) -> list[Any] | None:
        """Return the leaves of the output if all searches had other results; None if that cannot be found out."""
        reference, mirrored = self._reference(), _Mirrored()
        try:
            with mirrored:
                result = reference.own_result(cloned(inputs), copy.deepcopy(reference.model))
        except ProblemError:
            return None
        return None if mirrored.all_equal else pytree.tree_leaves(result)

    def _seen(self, inputs: list[Any]) -> Lookups:
        reference = self._reference()
        # an error of the reference is reported where its result is needed
        lookups = Lookups()
        with lookups, suppress(ProblemError):
            reference.own_result(cloned(inputs), copy.deepcopy(reference.model))
        return lookups

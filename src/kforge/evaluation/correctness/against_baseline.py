"""Compares an output with the baseline's, for results that depend on earlier calls. (torch)

The baseline is torch at the problem's dtype, so it has an error itself. Copies of the reference, at its dtype and in
fp64, show how large torch's error is for the inputs of this call: a copy may have another history than the baseline,
but its rounding is similar. So each tensor of an output has its own tolerance. Integers must equal the baseline's,
unless the copies give the baseline's integers, too, and show that the program's are equally good.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.comparison.comparison import Agreement, Truth, compare, ordered_like
from kforge.evaluation.constants import ERROR_FACTOR
from kforge.evaluation.correctness.rounding import excused
from kforge.records import Mismatch

if TYPE_CHECKING:
    from kforge.evaluation.reference.reference import Reference

BESIDE_FACTOR = 2.0
"""Two outputs may differ by this factor times the tolerance, because each of them may have an error."""


class Beside:
    """Compares one output with the baseline's, for results that depend on earlier calls."""

    def __init__(self, reference: Reference, inputs: list[Any] | None, precision: str, most: float) -> None:
        """`inputs` are those of the call; None for state.

        `most` is the tolerance of each tensor if `inputs` is None, or if copies of the reference give no result.
        """
        self._reference = reference
        self._inputs = inputs
        self._precision = precision
        self._most = most
        self._asked = False
        self._truth: Truth | None = None

    def differs(self, expected: Any, output: Any, case: str) -> Mismatch | None:
        """Return a Mismatch if the output is wrong; None if it is right."""
        found = compare(Truth(expected, expected), output, self._precision, case)
        if not isinstance(found, Mismatch) or found.kind != "numerical":
            return found if isinstance(found, Mismatch) else None
        ours, theirs = pytree.tree_leaves(expected), pytree.tree_leaves(ordered_like(expected, output))
        if len(ours) != len(theirs):
            return found
        whole = []
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            off = compare(Truth(one, one), other, self._precision, case, f"tensor {number} of the output")
            if not isinstance(off, Mismatch):
                continue
            if off.kind != "numerical":
                return off
            if _is_whole(one):
                whole.append(off)
            elif not self._is_rounding(number, one, other, case):
                return off
        return whole[0] if whole and not self._choices_are_as_good(ours, theirs) else None

    @property
    def truth(self) -> Truth | None:
        """The right result by copies of the reference; None if they give none."""
        if not self._asked and self._inputs is not None:
            self._truth = self._reference.truth_of_copies(self._inputs)
        self._asked = True
        return self._truth

    def _is_rounding(self, number: int, expected: Any, got: Any, case: str) -> bool:
        """Return whether two tensors differ by no more than rounding explains."""
        if not isinstance(expected, torch.Tensor):
            return False
        if self._overflows(number):
            # one side may overflow where the other is close to the largest number of the dtype
            inside = torch.isfinite(expected) & torch.isfinite(got)
            if bool((torch.isfinite(expected) & ~inside & (expected.abs() < torch.finfo(got.dtype).max / 2)).any()):
                return False
            expected, got = (tensor.masked_fill(~inside, 0.0) for tensor in (expected, got))
        off = compare(Truth(expected, expected), got, self._precision, case)
        if not isinstance(off, Mismatch):
            return True
        return off.max_error is not None and off.max_error <= BESIDE_FACTOR * self._tolerance(number)

    def _leaf(self, number: int) -> tuple[Any, Any] | None:
        """Return what copies of the reference give for one tensor, in fp64 and at the problem's dtype; None if
        unknown."""
        if self.truth is None:
            return None
        exact, own = (pytree.tree_leaves(tree) for tree in (self.truth.exact, self.truth.own))
        return (exact[number], own[number]) if len(exact) == len(own) > number else None

    def _overflows(self, number: int) -> bool:
        """Return whether torch overflows in one tensor where fp64 does not."""
        leaf = self._leaf(number)
        return leaf is not None and bool((torch.isfinite(leaf[0]) & ~torch.isfinite(leaf[1])).any())

    def _tolerance(self, number: int) -> float:
        """Return the tolerance of one tensor: ERROR_FACTOR times torch's own error, but at least the floor."""
        if self._inputs is None:
            return self._most
        leaf = self._leaf(number)
        if leaf is None:
            return self._most
        found = compare(Truth(*leaf), leaf[1], self._precision, "")
        if not isinstance(found, Agreement):
            return 0.0
        tolerance = max(found.tolerance, ERROR_FACTOR * found.error)
        return tolerance if math.isfinite(tolerance) else 0.0

    def _choices_are_as_good(self, expected: list[Any], got: list[Any]) -> bool:
        """Return whether the copies of the reference show that both sides' integers are right."""
        if self.truth is None:
            return False
        own, structure = pytree.tree_flatten(self.truth.own)
        if len(own) != len(expected):
            return False

        def is_right(leaves: list[Any]) -> bool:
            mixed = [leaf if _is_whole(leaf) else ours for leaf, ours in zip(leaves, own, strict=True)]
            value = pytree.tree_unflatten(mixed, structure)
            assert self.truth is not None
            if not isinstance(compare(self.truth, value, self._precision, ""), Mismatch):
                return True
            return excused(self._reference, self.truth, value, self._precision) is not None

        return is_right(expected) and is_right(got)


def _is_whole(leaf: Any) -> bool:
    return not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex())

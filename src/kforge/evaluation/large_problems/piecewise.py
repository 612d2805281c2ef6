"""Judges a large case piece by piece, so that its inputs and its right result need not exist twice in memory. (torch)

The inputs lie in the worker's memory, and the referee keeps only their fingerprints. Each piece is copied from there,
and the copy is compared with its fingerprint. So a program that changes its inputs, even for a short time, is detected.
The right result is computed from the copy. An output is read in place. Each piece is judged on its own scale.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.comparison.comparison import Truth, compare, ordered_like
from kforge.evaluation.comparison.overflow import overflows
from kforge.problems.tensors import cloned, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.evaluation.comparison.fingerprint import Fingerprints
    from kforge.evaluation.large_problems.pieces import Cut
    from kforge.evaluation.reference.reference import Reference
    from kforge.problems.inputs.distributions import Distribution


class InputsChangedError(Exception):
    """The program has changed its inputs: they are no longer the values that were drawn."""


class Pieces:
    """The pieces of one case: their inputs, and their right results, which are computed on request."""

    def __init__(
        self,
        reference: Reference,
        cut: Cut,
        inputs: list[Any],
        prints: Fingerprints | None = None,
        precision: str = "strict",
    ) -> None:
        """With `prints`, fingerprints of the inputs are taken now, because a program will be able to change them."""
        self._reference = reference
        self._cut = cut
        self._inputs = inputs
        self._prints = prints
        self._precision = precision
        self._exact = cut.exact_pieces()
        """Numbers of the pieces whose right result is always computed in double precision."""
        self._sealed = [prints.of(cut.inputs(inputs, *bounds)) for bounds in cut.ranges()] if prints is not None else []

    def moved(self, inputs: list[Any]) -> None:
        """Read pieces from these tensors from now on: the inputs have been moved there."""
        self._inputs = inputs

    def truths(self) -> Iterator[tuple[Truth, tuple[int, int]]]:
        """Yield the right result, with begin and end, of each piece that is computed in double precision.

        Raises InputsChangedError if the program changed the inputs, and ProblemError if the reference fails.
        """
        for number, bounds in enumerate(self._cut.ranges()):
            if number in self._exact:
                yield self._reference.truth(self._piece(number, bounds)), bounds

    def learn_form(self) -> None:
        """Find out the size of the output by running the reference on one piece. Raises ProblemError if the reference
        fails."""
        self._note_size(self._form(next(self.truths())[0]))

    def against(self, output: Any) -> Iterator[tuple[Truth, Any]]:
        """Yield pairs of the right result of a piece and that piece of an output.

        Pieces that need no double precision and agree with torch's own result are left out. If the output does not have
        the right shapes and dtypes, the whole output is yielded once. Raises InputsChangedError and ProblemError like
        `truths`.
        """
        for number, bounds in enumerate(self._cut.ranges()):
            inputs = self._piece(number, bounds)
            if number not in self._exact and self._is_near_own(inputs, output, bounds):
                continue
            self._exact.add(number)
            truth = self._reference.truth(inputs)
            form = self._form(truth)
            self._note_size(form)
            if not _has_form(form, output):
                yield Truth(form, form), output
                return
            yield truth, self._cut.output(output, *bounds)

    def _is_near_own(self, inputs: list[Any], output: Any, bounds: tuple[int, int]) -> bool:
        """Return whether a piece of an output agrees with torch's own result within the floor."""
        if not self._cut.cuts_output(output):
            return False
        own = self._reference.own_result(inputs)
        part = self._cut.output(output, *bounds)
        found = compare(Truth(own, own), part, self._precision, "a piece")
        return not isinstance(found, Mismatch)

    def overflow(self, precision: str) -> bool:
        """Return whether a piece that is computed in double precision overflows, as `overflow.overflows` defines it.

        Under `half`, the range of float16 counts. Raises ProblemError if the reference fails on a piece, and
        InputsChangedError if the inputs are no longer as they were drawn.
        """
        return any(overflows(truth, precision) for truth, _ in self.truths())

    def aliases(self) -> frozenset[tuple[int, int]]:
        """Return which of torch's own outputs lie in which inputs. This is the same in every piece."""
        return frozenset(next(self.truths())[0].aliases)

    def _piece(self, number: int, bounds: tuple[int, int]) -> list[Any]:
        """Return the inputs of a piece. Raises InputsChangedError if they are no longer as they were drawn."""
        piece: list[Any] = self._cut.inputs(self._inputs, *bounds)
        if self._prints is None:
            return piece
        piece = cloned(piece)  # the copy, which no program can change, is checked and then used
        if self._prints.of(piece) != self._sealed[number]:
            raise InputsChangedError
        return piece

    def _note_size(self, form: Any) -> None:
        sizes = (tensor.numel() * tensor.element_size() for tensor in tensors_in(form))
        self._reference.output_bytes = max(self._reference.output_bytes, sum(sizes))

    def _form(self, truth: Truth) -> Any:
        """Return the whole output as tensors without values."""
        cut = self._cut

        def widened(leaf: Any) -> Any:
            shape = [cut.size if dim == cut.dim else size for dim, size in enumerate(leaf.shape)]
            return torch.empty(shape, dtype=leaf.dtype, device="meta")

        return pytree.tree_map(widened, truth.own if truth.is_whole else truth.form)


class Kept:
    """What is kept of a large output: its fingerprints, and a copy of one random piece."""

    def __init__(self, value: Any, cut: Cut, prints: Fingerprints) -> None:
        self._prints = prints
        self.cut = cut
        self.prints = prints.of(value)
        self.bounds = secrets.choice(cut.ranges())
        self.part = cloned(cut.output(value, *self.bounds))

    def is_still(self, value: Any, but: set[int] = frozenset()) -> bool:  # type: ignore[assignment]
        """Return whether a value is bitwise the same as before, except for the tensors with these numbers."""
        now = self._prints.of(value)
        return len(now) == len(self.prints) and all(
            number in but or one == other for number, (one, other) in enumerate(zip(self.prints, now, strict=True))
        )


def _has_form(form: Any, output: Any) -> bool:
    """Return whether an output has the structure, shapes and dtypes of `form`. A named tuple counts as a tuple."""
    plain = ordered_like(form, form), ordered_like(form, output)
    (ours, structure), (theirs, other) = map(pytree.tree_flatten, plain)
    return structure == other and all(
        isinstance(got, torch.Tensor) and got.shape == like.shape and got.dtype == like.dtype
        for like, got in zip(ours, theirs, strict=True)
    )


def redrawn(distribution: Distribution, inputs: list[Any], generator: torch.Generator, cut: Cut | None) -> list[Any]:
    """Return inputs of another distribution. Large inputs are drawn piece by piece, and overwrite the given ones."""
    if cut is None or not all(map(_can_be_overwritten(cut), cut.cut_inputs(inputs))):
        return distribution(inputs, generator)
    replaced = {id(tensor) for tensor in cut.cut_inputs(inputs)}
    others: list[Any] | None = None
    for bounds in cut.ranges():
        piece = cut.inputs(inputs, *bounds)
        fresh = distribution(piece, generator)
        for target, values in zip(cut.cut_inputs_of(piece, inputs), cut.cut_inputs_of(fresh, inputs), strict=True):
            target.copy_(values)
        others = fresh if others is None else others
    leaves, structure = pytree.tree_flatten(inputs)
    drawn = pytree.tree_leaves(others)
    merged = [leaf if id(leaf) in replaced else new for leaf, new in zip(leaves, drawn, strict=True)]
    return list(pytree.tree_unflatten(merged, structure))


def _can_be_overwritten(cut: Cut) -> Callable[[torch.Tensor], bool]:
    """Return a function that tells whether a tensor can be drawn piece by piece."""

    def can(tensor: torch.Tensor) -> bool:
        """Return whether each element has its own address, and no square matrix is cut through."""
        dense = all(stride > 0 or size <= 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] and cut.dim >= tensor.dim() - 2
        return dense and not square and not tensor.requires_grad

    return can

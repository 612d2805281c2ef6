"""Judges a large case piece by piece, so that neither its inputs nor its truth exist twice. (torch)

The inputs lie where the worker has them, and the referee keeps only their fingerprints. Each piece is copied from
there, its copy is compared with its fingerprint, and the truth is computed from that copy: a program that changes its
inputs, even for a moment, is detected. An output is read where it lies. Each piece is judged on the scale of its own
truth.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.evaluation.comparison.comparison import Truth, compare
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
    """Raised when inputs are not what was drawn."""


class Pieces:
    """The pieces of one case: their inputs and their truths, which are computed on request."""

    def __init__(
        self,
        reference: Reference,
        cut: Cut,
        inputs: list[Any],
        prints: Fingerprints | None = None,
        precision: str = "strict",
    ) -> None:
        """`prints`: take fingerprints of the inputs now, because they will be where a program can change them."""
        self._reference = reference
        self._cut = cut
        self._inputs = inputs
        self._prints = prints
        self._precision = precision
        self._exact = cut.exact_pieces()
        """Numbers of the pieces that are always computed in double precision, whatever torch's own result is."""
        self._sealed = [prints.of(cut.inputs(inputs, *bounds)) for bounds in cut.ranges()] if prints is not None else []

    def moved(self, inputs: list[Any]) -> None:
        """Read the inputs from these tensors from now on."""
        self._inputs = inputs

    def truths(self) -> Iterator[tuple[Truth, tuple[int, int]]]:
        """Yield the truth of each piece that is computed exactly, and where it begins and ends.

        Raises InputsChangedError and ProblemError.
        """
        for number, bounds in enumerate(self._cut.ranges()):
            if number in self._exact:
                yield self._reference.truth(self._piece(number, bounds)), bounds

    def learn_form(self) -> None:
        """Run the reference on the first piece, unless the size of its output is known."""
        if not self._reference.output_bytes:
            self._note_size(self._form(next(self.truths())[0]))

    def against(self, output: Any) -> Iterator[tuple[Truth, Any]]:
        """Yield the truth of each piece and that piece of an output; the whole output where it has another form.

        Where only some truths are computed, pieces that agree with torch's own result are left out.
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
        """Return whether a piece of an output is as near to torch's own result as the floor asks."""
        if not self._cut.cuts_output(output):
            return False
        own = self._reference.own_result(inputs)
        part = self._cut.output(output, *bounds)
        found = compare(Truth(own, own), part, self._precision, "a piece")
        return not isinstance(found, Mismatch)

    def overflow(self, precision: str) -> bool:
        """Return whether torch overflows in any piece whose truth is computed, see `overflow.overflows`."""
        return any(overflows(truth, precision) for truth, _ in self.truths())

    def aliases(self) -> frozenset[tuple[int, int]]:
        """Return which of torch's own outputs lie in the memory of which inputs: the same in one piece as in all."""
        return frozenset(next(self.truths())[0].aliases)

    def _piece(self, number: int, bounds: tuple[int, int]) -> list[Any]:
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
        """Return the form of the whole output: tensors without values."""
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
        """Return whether a value is bitwise the same, except for the tensors of these numbers."""
        now = self._prints.of(value)
        return len(now) == len(self.prints) and all(
            number in but or one == other for number, (one, other) in enumerate(zip(self.prints, now, strict=True))
        )


def _has_form(form: Any, output: Any) -> bool:
    (ours, structure), (theirs, other) = pytree.tree_flatten(form), pytree.tree_flatten(output)
    return structure == other and all(
        isinstance(got, torch.Tensor) and got.shape == like.shape and got.dtype == like.dtype
        for like, got in zip(ours, theirs, strict=True)
    )


def redrawn(distribution: Distribution, inputs: list[Any], generator: torch.Generator, cut: Cut | None) -> list[Any]:
    """Return inputs of another distribution; large ones are drawn piece by piece, over the given ones."""
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
    def can(tensor: torch.Tensor) -> bool:
        """Whether it can be redrawn: each element has its own address, and no symmetric square matrix is changed."""
        dense = all(stride > 0 or size <= 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] and cut.dim >= tensor.dim() - 2
        return dense and not square and not tensor.requires_grad

    return can

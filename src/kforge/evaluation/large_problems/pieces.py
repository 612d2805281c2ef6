"""Finds a dimension along which a module's inputs can be cut into pieces that are computed independently. (torch)

A module treats the samples of a batch independently if its result for a part of the batch equals that part of its
result for the whole. This is tried at random positions, and again after all other samples were replaced, which detects
a batch normalization in training mode or a softmax over the batch. It is tried again for each input distribution,
because a module may couple its samples only if they are large. A module that couples its samples is never cut.
"""

from __future__ import annotations

import itertools
import math
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from kforge.errors import ProblemError
from kforge.evaluation.comparison.comparison import Truth, compare
from kforge.problems.tensors import cloned, same, tensors_in
from kforge.records import Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.problems.instance import Instance

MAX_DIM = 3
"""Number of leading dimensions along which cutting the inputs into pieces is tried."""
TRIED_PARTS = 3
"""Number of random parts that must agree with the whole. The first one is a single sample."""


@dataclass(frozen=True)
class Cut:
    """How inputs and outputs are cut into `count` pieces along the dimension `dim`, which has `size` positions."""

    dim: int
    size: int
    only_first: bool
    """Whether only the first input tensor is cut. Otherwise every input tensor with this size is cut."""
    count: int = 1
    exact: int = 1
    """Number of pieces of a case whose right result is computed in double precision. For the others torch's own result
    is used."""

    def ranges(self) -> list[tuple[int, int]]:
        """Return begin and end of each piece along the cut dimension."""
        bounds = [self.size * number // self.count for number in range(self.count + 1)]
        return [(low, high) for low, high in itertools.pairwise(bounds) if low < high]

    def inputs(self, value: Any, low: int, high: int) -> Any:
        """Return the piece of the inputs from position `low` to `high` of the cut dimension, as views."""
        cut = {id(tensor) for tensor in self.cut_inputs(value)}
        return pytree.tree_map(lambda leaf: self._narrow(leaf, low, high) if id(leaf) in cut else leaf, value)

    def cut_inputs(self, value: Any) -> list[torch.Tensor]:
        """Return the input tensors that are cut."""
        tensors = tensors_in(value)
        return [tensor for tensor in (tensors[:1] if self.only_first else tensors) if self._fits(tensor)]

    def cut_inputs_of(self, piece: Any, whole: Any) -> list[torch.Tensor]:
        """Return those tensors of a piece of the inputs that are parts of larger tensors in `whole`."""
        cut = {id(tensor) for tensor in self.cut_inputs(whole)}
        pairs = zip(tensors_in(piece), tensors_in(whole), strict=True)
        return [tensor for tensor, other in pairs if id(other) in cut]

    def output(self, value: Any, low: int, high: int) -> Any:
        """Return the piece of an output from position `low` to `high` of the cut dimension. Every tensor is cut."""
        return pytree.tree_map(lambda leaf: self._narrow(leaf, low, high), value)

    def cuts_output(self, value: Any) -> bool:
        """Return whether an output can be cut: it consists of tensors that have this size along the dimension."""
        leaves = pytree.tree_leaves(value)
        return bool(leaves) and all(isinstance(leaf, torch.Tensor) and self._fits(leaf) for leaf in leaves)

    def into(self, count: int, share: float = 1.0) -> Cut:
        """Return the same cut with another number of pieces, of which the share `share` is computed in double
        precision."""
        count = max(1, min(count, self.size))
        return replace(self, count=count, exact=max(1, min(count, math.ceil(share * count))))

    def exact_pieces(self) -> set[int]:
        """Return the numbers of the pieces that are computed in double precision. They are random, and drawn at each
        call."""
        return set(secrets.SystemRandom().sample(range(self.count), self.exact))

    def _fits(self, tensor: torch.Tensor) -> bool:
        return tensor.dim() > self.dim and tensor.shape[self.dim] == self.size

    def _narrow(self, tensor: torch.Tensor, low: int, high: int) -> torch.Tensor:
        return tensor.narrow(self.dim, low, high - low)


def part_of(instance: Instance, cut: Cut, least: int) -> Instance:
    """Return the same problem with at most `least` positions of the cut dimension."""
    size = min(least, cut.size)
    return instance.with_inputs(lambda inputs: list(cloned(cut.inputs(inputs, 0, size))))


def find_cut(run: Callable[[list[Any]], Any], inputs: list[Any]) -> Cut | None:
    """Return a way to cut the inputs of the module that `run` calls; None if none was found.

    `run` raises ProblemError for inputs that the module does not accept. The inputs are overwritten.
    """
    whole = run(inputs)
    for cut in _possible(inputs):
        if not cut.cuts_output(whole):
            continue
        with suppress(ProblemError):  # the module does not take such a part
            if not _agrees_in_parts(run, inputs, whole, cut):
                continue
            if _ignores_the_rest(run, inputs, cut):
                return cut
            whole = run(inputs)  # the inputs have changed by now
    return None


def holds_for(cut: Cut, run: Callable[[list[Any]], Any], inputs: list[Any]) -> bool:
    """Return whether a cut that was found on other inputs is valid for these. The inputs are not changed.

    A module may clip a common norm, which couples samples only if they are large. It may also accept the whole inputs
    and no part of them; then the cut is not valid. Raises ProblemError, as `run` does, if the module does not accept
    the whole inputs.
    """
    whole = run(inputs)
    try:
        return cut.cuts_output(whole) and _agrees_in_parts(run, inputs, whole, cut)
    except ProblemError:
        return False


def _possible(inputs: list[Any]) -> Iterator[Cut]:
    """Yield the ways to cut these inputs that may be tried."""
    first = next(iter(tensors_in(inputs)), None)
    if first is None:
        return
    for dim in range(min(MAX_DIM, first.dim())):
        size = first.shape[dim]
        # of two matrices that are multiplied only one may be cut, though both have the same number of rows
        yield from (Cut(dim, size, only_first) for only_first in (False, True) if size > 1)


def _agrees_in_parts(run: Callable[[list[Any]], Any], inputs: list[Any], whole: Any, cut: Cut) -> bool:
    """Return whether the results for random parts agree with the parts of the whole result."""
    chance = secrets.SystemRandom()
    for number in range(TRIED_PARTS):
        length = chance.randint(1, max(1, cut.size // 8)) if number else 1
        low = chance.randint(0, cut.size - length)
        if not _alike(cut.output(whole, low, low + length), run(cut.inputs(inputs, low, low + length))):
            return False
    return True


def _ignores_the_rest(run: Callable[[list[Any]], Any], inputs: list[Any], cut: Cut) -> bool:
    """Return whether the result for a part stays the same when every other sample is replaced by a copy of one of
    them."""
    length = max(1, cut.size // 8)
    low = secrets.randbelow(cut.size - length + 1)
    alone = run(cut.inputs(inputs, low, low + length))
    other = low + length if low + length < cut.size else 0
    for tensor in cut.cut_inputs(inputs):
        model = tensor.narrow(cut.dim, other, 1).clone()
        for begin, end in ((0, low), (low + length, cut.size)):
            if end > begin:
                _overwrite(tensor.narrow(cut.dim, begin, end - begin), model)
    return _alike(alone, cut.output(run(inputs), low, low + length))


def _overwrite(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Overwrite the elements of a tensor. Elements that share an address are written once."""
    once = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    target = tensor.detach().as_strided(once, tensor.stride(), tensor.storage_offset())
    for dim, size in enumerate(once):
        value = value.narrow(dim, 0, 1) if size == 1 else value
    target.copy_(value.expand(once))


def _alike(one: Any, other: Any) -> bool:
    """Return whether two results are bitwise equal, or within the strict tolerance."""
    return same(one, other) or not isinstance(compare(Truth(one, one), other, "strict", "a part"), Mismatch)

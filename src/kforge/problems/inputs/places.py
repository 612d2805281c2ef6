"""Finds which tensors of different draws of a problem's inputs belong together: they share one place. (torch)

Usually each draw has the same number of tensors, and those at the same position share a place. If a list among the
inputs has another length in each draw, positions shift. Then all tensors in that list that have the same kind (floating
point, complex, integer, boolean) and the same number of dimensions share a place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Path = tuple[Any, ...]
"""The way to a tensor in nested inputs: an index for each list or tuple, and a string for each other container."""
ANY = None
"""Replaces, in a path, the index in a list whose length changes."""


class Places:
    """The places of the tensors of a problem's inputs, numbered in the order in which draws show them."""

    def __init__(self, draws: Sequence[Sequence[tuple[Path, Tensor]]]) -> None:
        """`draws` are the results of `paths_of` for several draws."""
        self._lists = _changing([[path for path, _ in draw] for draw in draws])
        self._numbers: dict[Path, int] = {}
        self._loosely: dict[Path, int] = {}
        """Places by path with all indices replaced by ANY, for lists that change their length only in later draws."""
        for draw in draws:
            for path, tensor in draw:
                number = self._numbers.setdefault(self._key(path, tensor), len(self._numbers))
                self._loosely.setdefault(_loose(path, tensor), number)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def change(self) -> bool:
        """Whether the number of tensors changes from draw to draw."""
        return bool(self._lists)

    def of(self, inputs: Sequence[Any]) -> list[int | None]:
        """Return the place of each tensor of these inputs, in order; None for a tensor that no draw had."""
        found = []
        for path, tensor in paths_of(inputs):
            loosely = self._loosely.get(_loose(path, tensor))
            found.append(self._numbers.get(self._key(path, tensor), loosely))
        return found

    def _key(self, path: Path, tensor: Tensor) -> Path:
        """Return what the tensors of one place have in common: the path, and in a list whose length changes also the
        form."""
        general = _generalized(path, self._lists)
        return (*general, *_form(tensor)) if ANY in general else general


def paths_of(inputs: Sequence[Any]) -> list[tuple[Path, Tensor]]:
    """Return the tensors of nested inputs in order, each with its path."""
    found, _ = pytree.tree_flatten_with_path(list(inputs))
    return [(tuple(map(_step, path)), leaf) for path, leaf in found if isinstance(leaf, Tensor)]


def _step(key: Any) -> Any:
    return key.idx if isinstance(key, pytree.SequenceKey) else str(key)


def _form(tensor: Tensor) -> tuple[str, str]:
    """Return the form of a tensor, which is its kind and its number of dimensions, as words that no path contains."""
    kind = "boolean" if str(tensor.dtype) == "torch.bool" else "integer"
    kind = "floating" if tensor.is_floating_point() else "complex" if tensor.is_complex() else kind
    return f"kind {kind}", f"dimensions {tensor.dim()}"


def _loose(path: Path, tensor: Tensor) -> Path:
    """Return the path with all indices replaced by ANY, followed by the tensor's form."""
    return (*(ANY if isinstance(step, int) else step for step in path), *_form(tensor))


def _generalized(path: Iterable[Any], lists: frozenset[Path]) -> Path:
    """Return the path with the index in each of these lists replaced by ANY."""
    general: Path = ()
    for step in path:
        general = (*general, ANY if isinstance(step, int) and general in lists else step)
    return general


def _changing(draws: Sequence[Sequence[Path]]) -> frozenset[Path]:
    """Return the paths of the lists that do not have the same indices everywhere.

    Draws are compared with each other. So are the lists that are members of one list whose length changes, because
    their paths become the same; hence the search is repeated until it finds no further list.
    """
    lists = frozenset[Path]()
    while True:
        indices: dict[Path, set[frozenset[int]]] = {}
        for paths in draws:
            inside: dict[Path, set[int]] = {}
            for path in paths:
                for depth, step in enumerate(path):
                    if isinstance(step, int):
                        inside.setdefault(path[:depth], set()).add(step)
            for where, there in inside.items():
                indices.setdefault(_generalized(where, lists), set()).add(frozenset(there))
        changing = lists | {where for where, several in indices.items() if len(several) > 1}
        if changing == lists:
            return lists
        lists = changing

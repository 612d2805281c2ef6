"""Lowers torch's operators that compute nothing: they change a shape or an order, select elements, or join tensors.

Each function takes the graph builder and the operator's arguments, with the name of a node for each tensor. It returns
the name of the result, or a tuple of names if torch returns several tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.smith.ir.graph import Builder

View = Callable[..., str | tuple[str, ...]]


def axes_of(b: Builder, x: str, given: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return the given axes as sorted, non-negative numbers without repeats. All axes if `given` is None or an empty
    list."""
    rank = len(b.shape(x))
    if given is None or given == []:
        return tuple(range(rank))
    return tuple(sorted({axis % max(1, rank) for axis in ([given] if isinstance(given, int) else given)}))


# --- other shapes -----------------------------------------------------------------------------------------------------


def _same(_: Builder, x: str, *__: Any, **___: Any) -> str:
    return x


def _reshape(b: Builder, x: str, shape: Sequence[int]) -> str:
    size, known = math.prod(b.shape(x)), math.prod(each for each in shape if each != -1)
    return b.reshape(x, tuple(size // known if each == -1 else each for each in shape))


def _view_as(b: Builder, x: str, other: str) -> str:
    return b.reshape(x, b.shape(other))


def _flatten(b: Builder, x: str, first: int = 0, last: int = -1) -> str:
    shape = b.shape(x)
    first, last = first % len(shape), last % len(shape)
    return b.reshape(x, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


def _unflatten(b: Builder, x: str, axis: int, sizes: Sequence[int]) -> str:
    shape = b.shape(x)
    axis %= len(shape)
    known = math.prod(each for each in sizes if each != -1)
    parts = tuple(shape[axis] // known if each == -1 else each for each in sizes)
    return b.reshape(x, (*shape[:axis], *parts, *shape[axis + 1 :]))


def _unsqueeze(b: Builder, x: str, axis: int) -> str:
    shape = b.shape(x)
    axis %= len(shape) + 1
    return b.reshape(x, (*shape[:axis], 1, *shape[axis:]))


def _squeeze(b: Builder, x: str, given: int | Sequence[int] | None = None) -> str:
    axes = axes_of(b, x, given)
    return b.reshape(x, tuple(size for axis, size in enumerate(b.shape(x)) if axis not in axes or size != 1))


# --- another order ----------------------------------------------------------------------------------------------------


def _permute(b: Builder, x: str, order: Sequence[int]) -> str:
    return b.permute(x, [axis % len(order) for axis in order])


def _transpose(b: Builder, x: str, one: int, other: int) -> str:
    order = list(range(len(b.shape(x))))
    order[one], order[other] = order[other], order[one]
    return b.permute(x, order)


def _reverse_axes(b: Builder, x: str) -> str:
    return b.permute(x, reversed(range(len(b.shape(x)))))


def _flip(b: Builder, x: str, given: Sequence[int]) -> str:
    for axis in axes_of(b, x, given) if given else ():
        size = b.shape(x)[axis]
        x = b.slice(x, axis, size - 1, -1, size) if size > 1 else x
    return x


# --- some of the elements ---------------------------------------------------------------------------------------------


def _slice(b: Builder, x: str, axis: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> str:
    axis %= len(b.shape(x))
    taken = range(b.shape(x)[axis])[start:end:step]
    return b.slice(x, axis, taken.start if taken else 0, step, len(taken))


def _narrow(b: Builder, x: str, axis: int, start: int, length: int) -> str:
    axis %= len(b.shape(x))
    return b.slice(x, axis, start % max(1, b.shape(x)[axis]), 1, length)


def _select(b: Builder, x: str, axis: int, index: int) -> str:
    shape = b.shape(x)
    axis %= len(shape)
    return b.reshape(b.slice(x, axis, index % shape[axis], 1, 1), (*shape[:axis], *shape[axis + 1 :]))


def _split(b: Builder, x: str, sizes: int | Sequence[int], axis: int = 0) -> tuple[str, ...]:
    axis %= len(b.shape(x))
    whole = b.shape(x)[axis]
    if isinstance(sizes, int):
        sizes = [min(sizes, whole - start) for start in range(0, whole, sizes)]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return tuple(b.slice(x, axis, start, 1, size) for start, size in zip(starts, sizes, strict=True))


def _chunk(b: Builder, x: str, count: int, axis: int = 0) -> tuple[str, ...]:
    return _split(b, x, -(-b.shape(x)[axis] // count), axis)


def _unbind(b: Builder, x: str, axis: int = 0) -> tuple[str, ...]:
    return tuple(_select(b, x, axis, index) for index in range(b.shape(x)[axis]))


# --- one after the other ----------------------------------------------------------------------------------------------


def _cat(b: Builder, parts: Sequence[str], axis: int = 0) -> str:
    parts = [each for each in parts if b.shape(each) != (0,)]  # torch ignores empty parts
    return b.join("cat", parts, axis % len(b.shape(parts[0])))


def _stack(b: Builder, parts: Sequence[str], axis: int = 0) -> str:
    return b.join("stack", parts, axis % (len(b.shape(parts[0])) + 1))


VIEWS: Mapping[str, View] = MappingProxyType(
    {
        "view": _reshape, "reshape": _reshape, "_unsafe_view": _reshape, "view_as": _view_as, "flatten": _flatten,
        "reshape_as": _view_as, "unflatten": _unflatten, "unsqueeze": _unsqueeze, "squeeze": _squeeze,
        "permute": _permute, "transpose": _transpose, "t": _reverse_axes, "numpy_T": _reverse_axes, "flip": _flip,
        "slice": _slice, "narrow": _narrow, "select": _select, "split": _split, "split_with_sizes": _split,
        "chunk": _chunk, "unbind": _unbind, "cat": _cat, "stack": _stack,
        "contiguous": _same, "clone": _same, "alias": _same, "detach": _same, "identity": _same,
    }
)  # fmt: skip

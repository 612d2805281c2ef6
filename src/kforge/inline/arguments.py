"""Converts the arguments of a launch to C values. An argument that does not fit raises LaunchError, with one line that
names the argument.

Everything that depends on the signature alone is computed once, because a launch should cost only a few microseconds.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kforge.inline.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kforge.inline.abi import Element
    from kforge.inline.grammar import Parameter, Signature

_FLOAT32_MAX = (2 - 2**-23) * 2.0**127


@dataclass(frozen=True)
class MemoryKind:
    """The kind of memory in which a kernel's tensors must lie."""

    holds: Callable[[Any], bool]
    """Returns whether a tensor lies in this memory."""
    words: str
    """How an error message describes the memory, such as `in host memory`."""


HOST = MemoryKind(operator.attrgetter("is_cpu"), "in host memory")


class Memory(NamedTuple):
    """Address and size in bytes of a tensor's memory."""

    address: int
    size: int

    @property
    def end(self) -> int:
        return self.address + self.size


def check_overlap(kernel: str, memories: Iterable[Memory]) -> None:
    """Raise LaunchError if two different memories overlap. Devices that work on copies of tensors need this check,
    because a shared byte would get two copies that can differ."""
    for one, after in itertools.pairwise(sorted(set(memories))):
        if after.address < one.end and after.size:
            raise LaunchError(
                f"{kernel}: two tensors overlap in memory, and this device works on copies of them; "
                "pass a .clone() of one"
            )


class Arguments:
    """Checks and converts the arguments of kernels with one signature."""

    __slots__ = ("_converters", "_signature")

    def __init__(self, signature: Signature, memory: MemoryKind) -> None:
        self._signature = signature
        self._converters = [
            _converter(
                f"{signature.name}: argument {index}" + (f" ({parameter.name})" if parameter.name else ""),
                parameter,
                memory,
            )
            for index, parameter in enumerate(signature.parameters, start=1)
        ]

    def convert(self, given: tuple[Any, ...]) -> list[Any]:
        """Return the addresses of tensors, and other arguments as plain numbers. Raises LaunchError if an argument is
        missing or does not fit its parameter."""
        if len(given) != len(self._converters):
            raise LaunchError(self._count_message(len(given)))
        return [convert(value) for convert, value in zip(self._converters, given, strict=True)]

    def _count_message(self, given: int) -> str:
        parameters = self._signature.parameters
        names = ", ".join(p.name or p.element.spelling + "*" * p.pointer for p in parameters)
        plural = "" if len(parameters) == 1 else "s"
        return f"{self._signature.name}: takes {len(parameters)} argument{plural} ({names}), got {given}"


def _converter(place: str, parameter: Parameter, memory: MemoryKind) -> Callable[[Any], Any]:
    if parameter.pointer:
        return _tensor(place, parameter.element, memory)
    return {"integer": _integer, "float": _float, "bool": _bool}[parameter.element.kind](place, parameter.element)


def _tensor(place: str, element: Element, memory: MemoryKind) -> Callable[[Any], int]:
    import torch

    tensor, holds, alignment = torch.Tensor, memory.holds, element.alignment
    dtypes = frozenset(getattr(torch, name) for name in element.dtypes)

    def convert(value: Any) -> int:
        if not isinstance(value, tensor):
            raise LaunchError(f"{place} must be a tensor, got {type(value).__name__}")
        if dtypes and value.dtype not in dtypes:
            got = str(value.dtype).removeprefix("torch.")
            raise LaunchError(f"{place} must be {' or '.join(element.dtypes)}, got {got}")
        if not holds(value):
            raise LaunchError(f"{place} must be {memory.words}, got a tensor on {value.device}")
        if not value.is_contiguous():
            if value.layout is not torch.strided:
                raise LaunchError(f"{place} must be a dense tensor, got a sparse one")
            raise LaunchError(f"{place} must be contiguous; pass its .contiguous()")
        try:
            pointer = value.data_ptr()
        except RuntimeError:  # tensors of vmap and other transforms have no address
            pointer = 0
        if not pointer and value.numel():
            raise LaunchError(f"{place} must be a tensor with its own memory, got a fake or wrapped one")
        if pointer % alignment:
            raise LaunchError(f"{place} must begin at a multiple of {alignment} bytes, as {element.spelling} does")
        return pointer

    return convert


def _integer(place: str, element: Element) -> Callable[[Any], int]:
    low, high = element.range

    def convert(value: Any) -> int:
        try:
            number = operator.index(value)
        except TypeError:
            raise LaunchError(f"{place} must be an int, got {type(value).__name__}") from None
        if not low <= number <= high:
            raise LaunchError(f"{place} must fit {element.spelling} ({low} to {high}), got {number}")
        return number

    return convert


def _float(place: str, element: Element) -> Callable[[Any], float]:
    limit = _FLOAT32_MAX if element.ctype is ctypes.c_float else math.inf

    def convert(value: Any) -> float:
        try:
            # Unlike float(value), this accepts every number and no text.
            number: float = value.__float__()
        except (AttributeError, TypeError, ValueError, RuntimeError):
            raise LaunchError(f"{place} must be a float, got {type(value).__name__}") from None
        except OverflowError:
            raise LaunchError(f"{place} must fit {element.spelling}, got an int that is too large") from None
        if abs(number) > limit and not math.isinf(number):
            raise LaunchError(f"{place} must fit {element.spelling}, got {number!r}")
        return number

    return convert


def _bool(place: str, _element: Element) -> Callable[[Any], bool]:
    def convert(value: Any) -> bool:
        if value is not True and value is not False:
            raise LaunchError(f"{place} must be a bool, got {type(value).__name__}")
        return value

    return convert

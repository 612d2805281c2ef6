"""A built library and its kernels: arguments are checked, then passed straight to C.

One launch costs a few microseconds, so all that can be known from the signature is worked out once.
"""

from __future__ import annotations

import ctypes
import math
import operator
from typing import TYPE_CHECKING, Any

from kforge.inline.errors import LaunchError, UnknownKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kforge.inline.abi import Element
    from kforge.inline.signature import Parameter, Signature

_FLOAT32_MAX = (2 - 2**-23) * 2.0**127


class Library:
    """The kernels of one source, as attributes: `library.name(*tensors_and_scalars)`."""

    def __init__(self, path: Path, signatures: Mapping[str, Signature], recipe: tuple[Any, ...]) -> None:
        """Load a built library; `recipe` is a (function, arguments) that makes an equal one.

        Raises OSError when the file cannot be loaded.
        """
        native = ctypes.CDLL(str(path))
        # A declaration of a foreign function, or one that the preprocessor removed, has no symbol here.
        self.__kernels = {name: Kernel(native[name], one) for name, one in signatures.items() if hasattr(native, name)}
        self.__recipe = recipe
        # Plain attributes, because a launch must not pay for __getattr__.
        vars(self).update(self.__kernels)

    def __getattr__(self, name: str) -> Any:
        raise UnknownKernel(f"no kernel named {name!r} in this library; it has: {', '.join(dir(self)) or 'none'}")

    def __dir__(self) -> list[str]:
        return sorted(self.__kernels)

    def __reduce__(self) -> tuple[Any, ...]:
        # A module that holds a library is copied and pickled like any other; the copy is loaded from the cache.
        return self.__recipe

    def __repr__(self) -> str:
        return f"<Library of {', '.join(dir(self))}>"


class Kernel:
    """One `extern "C"` function."""

    __slots__ = ("_converters", "_function", "signature")

    def __init__(self, function: Any, signature: Signature) -> None:
        self.signature = signature
        function.restype = signature.returns.ctype
        function.argtypes = [
            ctypes.c_void_p if parameter.pointer else parameter.element.ctype for parameter in signature.parameters
        ]
        self._function = function
        self._converters = [
            _converter(
                f"{signature.name}: argument {index}" + (f" ({parameter.name})" if parameter.name else ""),
                parameter,
            )
            for index, parameter in enumerate(signature.parameters, start=1)
        ]

    def __call__(self, *arguments: Any) -> Any:
        """Launch the kernel and wait for it.

        Raises LaunchError when the arguments do not fit the signature.
        """
        if len(arguments) != len(self._converters):
            raise LaunchError(self._count_message(len(arguments)))
        return self._function(*[convert(value) for convert, value in zip(self._converters, arguments, strict=True)])

    def _count_message(self, given: int) -> str:
        parameters = self.signature.parameters
        names = ", ".join(p.name or p.element.spelling + "*" * p.pointer for p in parameters)
        plural = "" if len(parameters) == 1 else "s"
        return f"{self.signature.name}: takes {len(parameters)} argument{plural} ({names}), got {given}"


def _converter(place: str, parameter: Parameter) -> Callable[[Any], Any]:
    if parameter.pointer:
        return _tensor(place, parameter.element)
    return {"integer": _integer, "float": _float, "bool": _bool}[parameter.element.kind](place, parameter.element)


def _tensor(place: str, element: Element) -> Callable[[Any], int]:
    import torch

    tensor = torch.Tensor
    dtypes = frozenset(getattr(torch, name) for name in element.dtypes)

    def convert(value: Any) -> int:
        if not isinstance(value, tensor):
            raise LaunchError(f"{place} must be a tensor, got {type(value).__name__}")
        if dtypes and value.dtype not in dtypes:
            got = str(value.dtype).removeprefix("torch.")
            raise LaunchError(f"{place} must be {' or '.join(element.dtypes)}, got {got}")
        if not value.is_cpu:
            raise LaunchError(f"{place} must be in host memory, got a tensor on {value.device}")
        if not value.is_contiguous():
            if value.layout is not torch.strided:
                raise LaunchError(f"{place} must be a dense tensor, got a sparse one")
            raise LaunchError(f"{place} must be contiguous; pass its .contiguous()")
        try:
            pointer = value.data_ptr()
        except RuntimeError:  # what vmap and other transforms pass refuses to give an address
            pointer = 0
        if not pointer and value.numel():
            raise LaunchError(f"{place} must be a tensor with memory of its own, got a fake or wrapped one")
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
            # Unlike float(value), this takes every number and no text.
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

"""A built C++ library and its kernels: checks the arguments of a call and passes them to C."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from kforge.inline.arguments import HOST, Arguments
from kforge.inline.errors import UnknownKernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.inline.grammar import Signature


class Library:
    """The kernels of one source as attributes: `library.name(*tensors_and_scalars)`."""

    def __init__(self, kernels: Mapping[str, Any], recipe: tuple[Any, ...]) -> None:
        """`recipe` is a pair (function, arguments); calling the function makes an equal library. Copying and pickling
        use it."""
        self.__kernels = dict(kernels)
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
    """One `extern "C"` function that can be called."""

    __slots__ = ("_arguments", "_function", "signature")

    def __init__(self, function: Any, signature: Signature) -> None:
        self.signature = signature
        function.restype = signature.returns.ctype
        function.argtypes = [
            ctypes.c_void_p if parameter.pointer else parameter.element.ctype for parameter in signature.parameters
        ]
        self._function = function
        self._arguments = Arguments(signature, HOST)

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel and return its result when it has finished.

        Raises LaunchError if the arguments do not fit the signature.
        """
        return self._function(*self._arguments.convert(arguments))

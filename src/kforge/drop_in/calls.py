"""Checks whether a call has inputs for which the program was verified: structure, shapes, dtypes, devices and layout.
(torch)"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from kforge.drop_in import Obstacle
from kforge.problems.tensors import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALIGNMENT = 64
"""Alignment of inputs, in bytes. A program is verified on inputs with this alignment, as torch allocates them. Its
vector instructions may crash on other addresses."""
PLAIN = (torch.Tensor, torch.nn.Parameter)
MISFIT = "misfit"
"""Kind of obstacle for arguments that `forward` does not accept. No warning is needed, since the module raises its
usual error."""
AGAIN = "to get a kernel for these calls, forge the module again with example inputs like these"


class Expected(NamedTuple):
    """Shape, dtype and strides of an input when the program was verified."""

    shape: torch.Size
    dtype: torch.dtype
    stride: tuple[int, ...] | None
    """The strides of the input. None means contiguous (row-major)."""

    def differs(self, tensor: torch.Tensor, what: str) -> Obstacle | None:
        if type(tensor) not in PLAIN:
            return Obstacle("subclass", f"{what} is a {type(tensor).__name__}, and kernels take plain tensors only")
        if tensor.shape != self.shape:
            shapes = f"{tuple(tensor.shape)}, and the kernel was verified for {tuple(self.shape)}"
            return Obstacle("shape", f"{what} has the shape {shapes}", AGAIN)
        if tensor.dtype is not self.dtype:
            return Obstacle("dtype", f"{what} is {tensor.dtype}, and the kernel was verified for {self.dtype}", AGAIN)
        if tensor.layout is not torch.strided or tensor.is_neg() or tensor.is_conj():
            return Obstacle("layout", f"{what} is not in dense memory", f"pass {what} as a dense tensor")
        if not (tensor.is_contiguous() if self.stride is None else tensor.stride() == self.stride):
            expected = "contiguous" if self.stride is None else f"of strides {self.stride}"
            advice = f"pass a contiguous copy of {what}" if self.stride is None else ""
            return Obstacle("layout", f"{what} has strides {tensor.stride()}, and was verified {expected}", advice)
        if tensor.data_ptr() % ALIGNMENT:
            reason = f"{what} begins at an address that is not a multiple of {ALIGNMENT} bytes, such as inside an array"
            return Obstacle("alignment", reason, f"pass a clone of {what}")
        return None


class Calls:
    """Describes the inputs for which a program was verified, and compares calls with them."""

    def __init__(self, inputs: Sequence[Any], device_type: str, forward: Callable[..., Any]) -> None:
        """`inputs` are examples with the verified structure, as positional arguments of `forward`. `device_type` is the
        kind of device on which they were verified."""
        leaves, structure = pytree.tree_flatten(tuple(inputs))
        self._template = pytree.tree_unflatten(range(len(leaves)), structure)
        self._expected = [_expected(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._count = len(inputs)
        self._flat = all(isinstance(each, torch.Tensor) for each in inputs)
        self._device_type = device_type
        self._names = _names(forward, self._count)

    def positional(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], forward: Callable[..., Any]
    ) -> tuple[Any, ...] | Obstacle:
        """Return the program's positional arguments for a call, which may use keywords or leave out arguments. Return
        an Obstacle if the call does not correspond to the example inputs."""
        if not kwargs and len(args) == self._count:
            return args
        try:
            bound = inspect.signature(forward).bind(*args, **kwargs)
        except TypeError as error:  # the module itself raises the usual error
            return Obstacle(MISFIT, f"the arguments do not fit forward: {error}")
        defaults = inspect.signature(forward).bind_partial()
        defaults.apply_defaults()
        bound.apply_defaults()
        for name, value in (*zip(_positional_names(bound), bound.args, strict=False), *bound.kwargs.items()):
            # if the examples left out an argument, the program was traced with its default
            if name not in self._names and not _same(value, defaults.arguments.get(name, inspect.Parameter.empty)):
                return Obstacle(
                    "arguments", f"the argument '{name}' is given, and was not in the example inputs", AGAIN
                )
        if len(bound.args) < self._count:
            reason = "some of the example inputs are given by keywords only"
            return Obstacle("arguments", reason, "pass them by position")
        return bound.args[: self._count]

    def mismatch(self, args: tuple[Any, ...]) -> Obstacle | None:
        """Return how these inputs differ from the verified ones, as an Obstacle, or None if they do not differ."""
        leaves = args if self._flat else self._leaves(args)
        if leaves is None:
            return Obstacle("structure", "the inputs are not nested as the example inputs were", AGAIN)
        device = None
        for place, (leaf, expected) in enumerate(zip(leaves, self._expected, strict=True)):
            if not isinstance(expected, Expected):
                if not _same(leaf, expected):
                    reason = f"{self._what(place)} is {leaf!r:.40}, and the kernel was verified for {expected!r:.40}"
                    return Obstacle("value", reason, AGAIN)
                continue
            if not isinstance(leaf, torch.Tensor):
                return Obstacle("structure", f"{self._what(place)} is not a tensor", AGAIN)
            if (obstacle := expected.differs(leaf, self._what(place))) is not None:
                return obstacle
            if leaf.device != device:
                if device is not None or leaf.device.type != self._device_type:
                    verified = f"the kernel was verified with all inputs on one {self._device_type} device"
                    advice = f"move module and inputs to {self._device_type}"
                    return Obstacle("device", f"{self._what(place)} is on {leaf.device}, and {verified}", advice)
                device = leaf.device
        if device is not None and device != HOST and device.index != torch.accelerator.current_device_index():
            advice = "make their device the current one, such as by torch.accelerator.set_device_index"
            return Obstacle("device", f"the inputs are on {device}, which is not the current device", advice)
        return None

    def _leaves(self, args: tuple[Any, ...]) -> Sequence[Any] | None:
        leaves, structure = pytree.tree_flatten(args)
        return leaves if structure == pytree.tree_structure(self._template) else None

    def _what(self, place: int) -> str:
        if self._flat and place < len(self._names):
            return f"input '{self._names[place]}'"
        return f"tensor {place} of the inputs"


def _expected(tensor: torch.Tensor) -> Expected:
    return Expected(tensor.shape, tensor.dtype, None if tensor.is_contiguous() else tensor.stride())


def _names(forward: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return the names of the first `count` positional parameters. There may be fewer, since arguments taken by `*args`
    have no names."""
    parameters = inspect.signature(forward).parameters.values()
    positional = (each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD))
    return tuple(positional)[:count]


def _positional_names(bound: inspect.BoundArguments) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, each in bound.signature.parameters.items() if each.kind in kinds]


def _same(value: Any, other: Any) -> bool:
    """Return whether two values are the same value of the same type. False for tensors and for values whose comparison
    fails."""
    if value is other:
        return True
    if isinstance(value, torch.Tensor) or isinstance(other, torch.Tensor) or type(value) is not type(other):
        return False
    try:
        return bool(value == other)
    except Exception:
        return False

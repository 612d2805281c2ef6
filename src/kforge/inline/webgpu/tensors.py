"""Converts tensors for a device and back: which dtypes are copied as they are, which are converted, and which are
refused. (torch)

| WGSL | tensors copied as they are | tensors converted |
| --- | --- | --- |
| f32 | float32 | float16 and bfloat16; outputs are rounded to them |
| f16 | float16 | |
| i32, u32 | int32, uint32 | bool, int8, uint8, int16, uint16, int64 and each other's, by value |
| i64, u64, f64 | int64, uint64, float64 | |

An integer that does not fit raises a LaunchError, before and after the launch. An output of a wider type may hold any
values before the launch, because it comes from `torch.empty`. If the kernel only writes it, values that do not fit are
replaced by a mark. A mark that is still there after the launch raises a LaunchError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.inline.errors import LaunchError

if TYPE_CHECKING:
    import torch

    from kforge.inline.webgpu.declarations import Buffer

_DEVICE = {
    "f16": "float16", "f32": "float32", "f64": "float64", "i32": "int32", "u32": "uint32", "i64": "int64",
    "u64": "uint64",
}  # fmt: skip
"""For each scalar type of WGSL, the dtype with the same bits."""
_FLOATS = ("float16", "bfloat16")
_INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
_CONVERTED = {"f32": _FLOATS, "i32": _INTEGERS, "u32": _INTEGERS}
_RANGES = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1)}
_MARKS = {"i32": -(2**31) + 1, "u32": 2**32 - 2}
"""The mark for a value that does not fit, by type. It is a value that a kernel is unlikely to compute."""


@dataclass(frozen=True)
class Passed:
    """A tensor argument of one launch: it is copied to the device, and back if the kernel may write it."""

    place: str
    """The name of the argument in messages."""
    buffer: Buffer
    tensor: torch.Tensor
    content: torch.Tensor
    """The converted tensor, in host memory, that is copied to the device."""
    marked: torch.Tensor | None = None
    """A mask of the elements of `content` that hold the mark. None if there are none."""

    @property
    def nbytes(self) -> int:
        return self.content.numel() * self.content.element_size()

    def receive(self, made: memoryview) -> None:
        """Copy the device's results into the tensor. Raises LaunchError for a value that does not fit."""
        if self.content.dtype == self.tensor.dtype:
            _fill(self.tensor, made)
            return
        found = self.content.new_empty(self.content.shape)
        _fill(found, made)
        if self.tensor.dtype.is_floating_point:
            self.tensor.copy_(found)
            return
        scalar = self.buffer.shape.scalar
        wide = _widened(found)
        if self.marked is not None and bool((wide[self.marked] == _MARKS[scalar]).any()):
            raise LaunchError(
                f"{self.place} held values that do not fit {scalar} before the launch, and the kernel has not "
                "overwritten all of them; make the tensor with torch.zeros"
            )
        low, high = _limits(self.tensor)
        _check(wide, low, high, f"{self.place}: the kernel wrote", _name(self.tensor))
        self.tensor.copy_(wide)


def passed(place: str, buffer: Buffer, value: Any, *, only_written: bool) -> Passed:
    """Return a tensor, checked and converted for the device. Raises LaunchError if it is not a tensor of the
    buffer's type."""
    import torch

    if not isinstance(value, torch.Tensor):
        raise LaunchError(f"{place} must be a tensor, got {type(value).__name__}")
    scalar = buffer.shape.scalar
    name = _name(value)
    if name != _DEVICE[scalar] and name not in _CONVERTED.get(scalar, ()):
        accepted = " or ".join((_DEVICE[scalar], *_CONVERTED.get(scalar, ())))
        raise LaunchError(f"{place} is {buffer.shape.spelling}: must be {accepted}, got {name}")
    _check_memory(place, value)
    _check_count(place, buffer, value)
    tensor = value.detach().reshape(-1)
    if name == _DEVICE[scalar]:
        return Passed(place, buffer, tensor, tensor)
    target = getattr(torch, _DEVICE[scalar])
    if value.dtype.is_floating_point:
        return Passed(place, buffer, tensor, tensor.to(target))
    wide = _widened(tensor)
    low, high = _RANGES[scalar] if name != "bool" else (0, 1)
    marked = (wide < low) | (wide > high) if _may_exceed(name, scalar) else None
    if marked is None or not bool(marked.any()):
        return Passed(place, buffer, tensor, wide.to(target))
    if not only_written:
        _check(wide, low, high, f"{place} holds", scalar)
    wide = wide.masked_fill(marked, _MARKS[scalar])
    return Passed(place, buffer, tensor, wide.to(target), marked)


def _may_exceed(name: str, scalar: str) -> bool:
    """Return whether values of this dtype may not fit the WGSL type. A bool in uninitialized memory may be neither 0
    nor 1."""
    return name in ("bool", "int64", "uint32" if scalar == "i32" else "int32") or (
        scalar == "u32" and name in ("int8", "int16")
    )


def _fill(tensor: torch.Tensor, content: memoryview) -> None:
    import numpy
    import torch

    # numpy is used because torch does not accept read-only memory
    raw = tensor.view(torch.uint8).numpy()
    numpy.copyto(raw, numpy.frombuffer(content, numpy.uint8)[: raw.size])


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return (tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor).to(torch.int64)


def _limits(tensor: torch.Tensor) -> tuple[int, int]:
    import torch

    if tensor.dtype == torch.bool:
        return 0, 1
    limits = torch.iinfo(tensor.dtype)
    return int(limits.min), int(limits.max)


def _check(wide: torch.Tensor, low: int, high: int, what: str, kind: str) -> None:
    if wide.numel():
        least, most = wide.min().item(), wide.max().item()
        if least < low or most > high:
            raise LaunchError(f"{what} {least if least < low else most}, which does not fit {kind} ({low} to {high})")


def _check_memory(place: str, value: torch.Tensor) -> None:
    import torch

    if not value.is_cpu:
        raise LaunchError(f"{place} must be in host memory, got a tensor on {value.device}")
    if value.layout is not torch.strided:
        raise LaunchError(f"{place} must be a dense tensor, got a sparse one")
    if not value.is_contiguous():
        raise LaunchError(f"{place} must be contiguous; pass its .contiguous()")
    try:
        pointer = value.data_ptr()
    except RuntimeError:  # tensors of vmap and other transforms have no address
        pointer = 0
    if not pointer and value.numel():
        raise LaunchError(f"{place} must be a tensor with its own memory, got a fake or wrapped one")


def _check_count(place: str, buffer: Buffer, value: torch.Tensor) -> None:
    shape, count = buffer.shape, value.numel()
    if count % shape.lanes:
        raise LaunchError(f"{place} is {shape.spelling}: must have a multiple of {shape.lanes} elements, got {count}")
    if shape.count is not None and count < shape.count * shape.lanes:
        raise LaunchError(f"{place} must have at least {shape.count * shape.lanes} elements, got {count}")


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")

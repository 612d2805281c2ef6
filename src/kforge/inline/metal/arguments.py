"""Checks the arguments of a launch against the kernel's parameters, and arranges them as buffers.

Arguments are treated as torch.mps treats them: an int has 64 bits and a float 32 bits, unless `arg_casts` says
otherwise. A value that a Mac would silently misread raises a LaunchError here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.inline.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence

VOID, BOOL, HALF, BFLOAT, FLOAT, STRUCTURE = 0, 1, 10, 11, 12, 13
VALUE, POINTER, REFERENCE = range(3)
_INTEGERS = {2: "char", 3: "uchar", 4: "short", 5: "ushort", 6: "int", 7: "uint", 8: "long", 9: "ulong"}
_NAMES = {VOID: "void", BOOL: "bool", HALF: "half", BFLOAT: "bfloat", FLOAT: "float", STRUCTURE: "struct", **_INTEGERS}
_SIZES = {BOOL: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 4, 8: 8, 9: 8, HALF: 2, BFLOAT: 2, FLOAT: 4}
_UNSIGNED = frozenset({3, 5, 7, 9})
_DTYPES = {
    BOOL: ("bool", "uint8"), 2: ("int8", "uint8", "bool"), 4: ("int16", "uint16"), 6: ("int32", "uint32"),
    8: ("int64", "uint64"), HALF: ("float16",), BFLOAT: ("bfloat16",), FLOAT: ("float32",),
}  # fmt: skip
"""The dtypes that a tensor may have for each type of a parameter. Unsigned integers are not listed: kernels read raw
bits through them, so any dtype of the same size fits."""
_CASTS = {
    "fp16": (HALF, "<e"),
    "bf16": (BFLOAT, ""),
    "int32": (6, "<i"),
    "int16": (4, "<h"),
    "int8": (2, "<b"),
    "uint8": (3, "<B"),
}
_CAST_OF_SIZE = {4: "int32", 2: "int16", 1: "uint8"}
"""For each size in bytes, an integer type of `arg_casts`. Integers of 8 bytes need none."""


@dataclass(frozen=True)
class Description:
    """A parameter as the compiler describes it."""

    name: str
    index: int
    kind: int
    code: int
    size: int
    granule: int
    constant: bool

    @classmethod
    def read(cls, name: str, index: int, facts: Sequence[int]) -> Description:
        kind, code, size, granule, constant = facts
        return cls(name, index, kind, code, size, granule, bool(constant))

    @property
    def spelling(self) -> str:
        scalar = _NAMES[self.code]
        lanes = self.size // _SIZES[self.code] if self.code in _SIZES else 1
        return f"{scalar}{lanes if lanes > 1 else ''}{'*' if self.kind == POINTER else '&'}"


@dataclass
class Buffer:
    """A range of memory that a kernel may access. `keep` is the object that owns it."""

    address: int
    size: int
    granule: int
    writable: bool
    names: list[str]
    keep: Any = None
    members: list[tuple[int, int]] = field(default_factory=list)
    """The arguments that point into the buffer, each as (index of the argument, offset in bytes)."""


def buffers(kernel: str, parameters: Sequence[Description], given: Sequence[Any], casts: Any) -> list[Buffer]:
    """Return one buffer for each argument. Tensors that overlap share one buffer. Raises LaunchError if an argument
    is missing or does not fit its parameter."""
    count = max((one.index for one in parameters), default=-1) + 1
    if len(given) != count:
        names = ", ".join(one.name for one in parameters)
        raise LaunchError(f"{kernel}: takes {count} argument{'' if count == 1 else 's'} ({names}), got {len(given)}")
    made = []
    for slot, one in enumerate(parameters):
        place = f"{kernel}: argument {one.index + 1} ({one.name})"
        buffer = _buffer(place, one, given[one.index], _cast(kernel, casts, one.index))
        buffer.members = [(slot, 0)]
        made.append(buffer)
    return _merged(made)


def _cast(kernel: str, casts: Any, index: int) -> str:
    name = casts.get(index, "") if isinstance(casts, dict) else casts or ""
    if name and name not in _CASTS:
        raise LaunchError(f"{kernel}: arg_casts must be one of {', '.join(_CASTS)}, got {name!r}")
    return str(name)


def _merged(made: list[Buffer]) -> list[Buffer]:
    merged: list[Buffer] = []
    for one in sorted(made, key=lambda buffer: buffer.address):
        last = merged[-1] if merged else None
        if last is None or not one.size or not last.size or one.address >= last.address + last.size:
            merged.append(one)
            continue
        offset = one.address - last.address
        last.members += [(slot, offset) for slot, _ in one.members]
        last.size = max(last.size, offset + one.size)
        last.granule = min(last.granule, one.granule)
        last.writable = last.writable or one.writable
        last.names += one.names
        last.keep = (last.keep, one.keep)
    return merged


def _buffer(place: str, parameter: Description, value: Any, cast: str) -> Buffer:
    import torch

    if isinstance(value, torch.Tensor):
        return _tensor(place, parameter, value)
    if not parameter.constant:
        raise LaunchError(f"{place} must be a tensor, got {type(value).__name__}")
    content = _content(place, parameter, value, cast)
    keep = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return Buffer(keep.data_ptr(), len(content), parameter.granule, writable=False, names=[parameter.name], keep=keep)


def _tensor(place: str, parameter: Description, value: Any) -> Buffer:
    import torch

    dtype = str(value.dtype).removeprefix("torch.")
    if value.dtype == torch.float64:
        raise LaunchError(f"{place}: Metal has no float64; pass its .float()")
    if parameter.code in _UNSIGNED:
        if value.element_size() != _SIZES[parameter.code] and _SIZES[parameter.code] > 1:
            bits = 8 * _SIZES[parameter.code]
            raise LaunchError(
                f"{place} is {parameter.spelling}: the tensor must have elements of {bits} bits, got {dtype}"
            )
    elif parameter.code in _DTYPES and dtype not in _DTYPES[parameter.code]:
        raise LaunchError(f"{place} is {parameter.spelling}: must be {_DTYPES[parameter.code][0]}, got {dtype}")
    if not value.is_cpu:
        raise LaunchError(f"{place} must be in host memory for the emulator, got a tensor on {value.device}")
    if value.layout is not torch.strided:
        raise LaunchError(f"{place} must be a dense tensor, got a sparse one")
    try:
        pointer = value.data_ptr()
    except RuntimeError:  # tensors of vmap and other transforms have no address
        pointer = 0
    if not pointer and value.numel():
        raise LaunchError(f"{place} must be a tensor with memory of its own, got a fake or wrapped one")
    reach = 0
    if value.numel():
        reach = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return Buffer(
        pointer, reach * value.element_size(), min(parameter.granule, value.element_size()) or 1,
        writable=not parameter.constant, names=[parameter.name], keep=value,
    )  # fmt: skip


def _content(place: str, parameter: Description, value: Any, cast: str) -> bytes:
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items:
        raise LaunchError(f"{place}: an empty list cannot be an argument")
    if not all(isinstance(item, int | float) for item in items):
        raise LaunchError(f"{place} must be a tensor, a number or a list of numbers, got {type(value).__name__}")
    code, content = _encoded(place, items, cast)
    if parameter.code == STRUCTURE or parameter.code == VOID:
        return content.ljust(parameter.size, b"\0")
    several = isinstance(value, list | tuple)
    _check_code(place, parameter, code, items, several=several)
    if several and parameter.kind == REFERENCE and len(items) != parameter.size // _SIZES[parameter.code]:
        lanes = parameter.size // _SIZES[parameter.code]
        if not (lanes == 4 and len(items) == 3):  # three components take the room of four
            raise LaunchError(f"{place} is {parameter.spelling}: needs {lanes} numbers, got {len(items)}")
    if not several and parameter.kind == REFERENCE and parameter.size > _SIZES[parameter.code]:
        raise LaunchError(f"{place} is {parameter.spelling}: needs a list of numbers, got one")
    return content.ljust(parameter.size, b"\0")


def _encoded(place: str, items: list[Any], cast: str) -> tuple[int, bytes]:
    """Return the type that torch.mps would pass these numbers as, and their bytes. Raises LaunchError if a number does
    not fit its type."""
    if cast:
        code, form = _CASTS[cast]
    else:
        code, form = (8, "<q") if isinstance(items[0], int) else (FLOAT, "<f")
    try:
        if code == BFLOAT:
            return code, b"".join(_bfloat(float(item)) for item in items)
        number = float if code in (HALF, FLOAT) else int
        return code, b"".join(struct.pack(form, number(item)) for item in items)
    except (struct.error, OverflowError) as error:
        raise LaunchError(f"{place}: {items[0]!r} does not fit {_NAMES[code]} ({error})") from None


def _bfloat(value: float) -> bytes:
    bits = int.from_bytes(struct.pack("<f", value), "little")
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF).to_bytes(2, "little")


def _check_code(place: str, parameter: Description, code: int, items: list[Any], *, several: bool) -> None:
    wanted = parameter.code
    floats = (HALF, BFLOAT, FLOAT)
    if wanted in floats:
        if code != wanted:
            need = {HALF: 'pass arg_casts="fp16"', BFLOAT: 'pass arg_casts="bf16"', FLOAT: "pass a float"}[wanted]
            raise LaunchError(
                f"{place} is {parameter.spelling}: torch.mps would pass the bits of {_NAMES[code]}; {need}"
            )
        return
    if code in floats:
        raise LaunchError(f"{place} is {parameter.spelling}: torch.mps would pass the bits of a float; pass an int")
    size = _SIZES[wanted]
    if several and _SIZES[code] != size:
        cast = _CAST_OF_SIZE.get(size)
        need = f'give the type by arg_casts, for example arg_casts="{cast}"' if cast else "leave out arg_casts"
        raise LaunchError(
            f"{place} is {parameter.spelling}: torch.mps passes a list of integers as {8 * _SIZES[code]}-bit integers; "
            f"{need}"
        )
    low, high = (0, 256**size - 1) if wanted in _UNSIGNED else (-(256**size) // 2, 256**size // 2 - 1)
    if wanted == BOOL:
        low, high = 0, 1
    for item in items:
        if not low <= item <= high:
            raise LaunchError(f"{place} must fit {_NAMES[wanted]} ({low} to {high}), got {item}")


def constant_bytes(place: str, code: int, value: Any) -> bytes:
    """Return the bytes of a function constant of this type. Raises LaunchError if the value does not fit."""
    forms = {
        BOOL: "<?",
        2: "<b",
        3: "<B",
        4: "<h",
        5: "<H",
        6: "<i",
        7: "<I",
        8: "<q",
        9: "<Q",
        HALF: "<e",
        FLOAT: "<f",
    }
    items = value if isinstance(value, list | tuple) else [value]
    try:
        if code == BFLOAT:
            return b"".join(_bfloat(item) for item in items)
        return b"".join(struct.pack(forms[code], item) for item in items)
    except (struct.error, KeyError, OverflowError):
        raise LaunchError(f"{place} must be {_NAMES.get(code, 'a number')}, got {value!r}") from None

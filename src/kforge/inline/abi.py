"""A table of the C types that a kernel's parameters may have, by their C++ spelling."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Element:
    """A C type that a parameter may have, by value or behind a pointer."""

    spelling: str
    kind: Literal["integer", "float", "bool", "void", "storage"]
    """`storage` is a type that ctypes cannot pass by value. It is allowed behind pointers only."""
    ctype: Any
    dtypes: tuple[str, ...]
    """torch's names of the dtypes that a tensor may have if a pointer to this type is expected. Empty means any."""
    alignment: int = 1
    """Required alignment of a tensor in bytes, if it is more than the dtype's own. Kernels that read several elements
    at once crash without it."""

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer type."""
        bits = 8 * ctypes.sizeof(self.ctype)
        unsigned = self.ctype(-1).value > 0
        return (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _integer(spelling: str, ctype: Any, *also: str) -> Element:
    sign = "u" if ctype(-1).value > 0 else ""
    return Element(spelling, "integer", ctype, (f"{sign}int{8 * ctypes.sizeof(ctype)}", *also))


# Kernels read some tensors as raw bits through an unsigned type: a bool mask as bytes, a bfloat16 as 16 bits.
_BYTES = ("bool",)
_HALVES = ("bfloat16", "float16")

_ELEMENTS = {
    element.spelling: element
    for element in (
        Element("void", "void", None, ()),
        Element("bool", "bool", ctypes.c_bool, ("bool",)),
        Element("float", "float", ctypes.c_float, ("float32",)),
        Element("double", "float", ctypes.c_double, ("float64",)),
        Element("_Float16", "storage", None, ("float16",)),
        Element("__fp16", "storage", None, ("float16",)),
        Element("__bf16", "storage", None, ("bfloat16",)),
        # From an accelerator's headers. The packed types are read whole, and fault at an unaligned address.
        *(Element(spelling, "storage", None, ("float16",)) for spelling in ("half", "__half")),
        *(
            Element(spelling, "storage", None, ("bfloat16",))
            for spelling in ("bfloat16", "nv_bfloat16", "__nv_bfloat16")
        ),
        *(Element(spelling, "storage", None, ("float16",), 4) for spelling in ("half2", "__half2")),
        *(Element(spelling, "storage", None, ("bfloat16",), 4) for spelling in ("nv_bfloat162", "__nv_bfloat162")),
        Element("float2", "storage", None, ("float32",), 8),
        Element("float4", "storage", None, ("float32",), 16),
        Element("double2", "storage", None, ("float64",), 16),
        Element("int2", "storage", None, ("int32",), 8),
        Element("int4", "storage", None, ("int32",), 16),
        # kernels copy bytes of any type through unsigned and packed types
        Element("uint2", "storage", None, (), 8),
        Element("uint4", "storage", None, (), 16),
        Element("char", "integer", ctypes.c_byte, ("int8", "uint8", "bool")),
        _integer("signed char", ctypes.c_byte),
        _integer("unsigned char", ctypes.c_ubyte, *_BYTES),
        _integer("short", ctypes.c_short),
        _integer("unsigned short", ctypes.c_ushort, *_HALVES),
        _integer("int", ctypes.c_int),
        _integer("unsigned int", ctypes.c_uint),
        _integer("long", ctypes.c_long),
        _integer("unsigned long", ctypes.c_ulong),
        _integer("long long", ctypes.c_longlong),
        _integer("unsigned long long", ctypes.c_ulonglong),
        _integer("int8_t", ctypes.c_int8),
        _integer("uint8_t", ctypes.c_uint8, *_BYTES),
        _integer("int16_t", ctypes.c_int16),
        _integer("uint16_t", ctypes.c_uint16, *_HALVES),
        _integer("int32_t", ctypes.c_int32),
        _integer("uint32_t", ctypes.c_uint32),
        _integer("int64_t", ctypes.c_int64),
        _integer("uint64_t", ctypes.c_uint64),
        _integer("size_t", ctypes.c_size_t),
        _integer("ssize_t", ctypes.c_ssize_t),
        _integer("ptrdiff_t", ctypes.c_ssize_t),
        _integer("intptr_t", ctypes.c_ssize_t),
        _integer("uintptr_t", ctypes.c_size_t),
    )
}

SPELLINGS = tuple(_ELEMENTS)

_INTEGER_WORDS = frozenset({"signed", "unsigned", "char", "short", "int", "long"})


def is_type_word(word: str) -> bool:
    """Return whether the word can only be part of a type name, such as `unsigned`, and never a parameter's name."""
    return word in _INTEGER_WORDS


def element(words: Sequence[str]) -> Element | None:
    """Return the type that these words spell (`long unsigned int` is `unsigned long`), or None if it is not in the
    table."""
    if words and set(words) <= _INTEGER_WORDS:
        return _ELEMENTS.get(_integer_spelling(words))
    return _ELEMENTS.get(" ".join(words))


def _integer_spelling(words: Sequence[str]) -> str:
    """Return the canonical spelling of an integer type, whose words C allows in any order."""
    if "char" in words:
        sign = next((word for word in words if word in ("signed", "unsigned")), None)
        return f"{sign} char" if sign else "char"
    size = "short" if "short" in words else " ".join(["long"] * words.count("long")) or "int"
    return f"unsigned {size}" if "unsigned" in words else size

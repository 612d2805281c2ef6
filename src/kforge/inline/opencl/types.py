"""A table of the OpenCL C types that a kernel's parameters may have, by their spelling."""

from __future__ import annotations

import ctypes

from kforge.inline.abi import Element

_INTEGERS = {
    "char": (ctypes.c_int8, ("int8", "bool")),
    "uchar": (ctypes.c_uint8, ("uint8", "bool")),
    "short": (ctypes.c_int16, ("int16",)),
    # raw bits: OpenCL C has no bfloat16, and only some devices have half
    "ushort": (ctypes.c_uint16, ("uint16", "bfloat16", "float16")),
    "int": (ctypes.c_int32, ("int32",)),
    "uint": (ctypes.c_uint32, ("uint32",)),
    "long": (ctypes.c_int64, ("int64",)),
    "ulong": (ctypes.c_uint64, ("uint64",)),
}
_LANES = {2: 2, 3: 4, 4: 4, 8: 8, 16: 16}
"""For each number of components of a vector type, the number of components for which it takes memory."""


def _elements() -> list[Element]:
    scalars = [
        Element("void", "void", None, ()),
        Element("half", "storage", None, ("float16",)),
        Element("float", "float", ctypes.c_float, ("float32",)),
        Element("double", "float", ctypes.c_double, ("float64",)),
        *(Element(spelling, "integer", ctype, dtypes) for spelling, (ctype, dtypes) in _INTEGERS.items()),
    ]
    sizes = {one.spelling: 2 if one.ctype is None else ctypes.sizeof(one.ctype) for one in scalars[1:]}
    vectors = [
        Element(f"{one.spelling}{lanes}", "storage", None, one.dtypes, sizes[one.spelling] * room)
        for one in scalars[1:]
        for lanes, room in _LANES.items()
    ]
    return [*scalars, *vectors]


_ELEMENTS = {one.spelling: one for one in _elements()}


def element(spelling: str, *, pointer: bool) -> Element | None:
    """Return the type of this name, or None if it cannot be passed.

    A pointer to a type that the source itself defines takes any tensor, because the size of that type is not known.
    """
    found = _ELEMENTS.get(spelling)
    if found is None and pointer:
        return Element(spelling, "storage", None, ())
    return found if pointer or (found is not None and found.ctype is not None) else None

"""Checks that every pointer and reference type names its address space. Metal requires it, but clang does not check
it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.inline.metal.kernels import SPACES

if TYPE_CHECKING:
    import re

    from kforge.inline.metal.text import Text

_SCALARS = (
    "bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "float", "bfloat",
)  # fmt: skip
_BUILT_IN = frozenset(
    [f"{scalar}{size}" for scalar in _SCALARS for size in ("", 2, 3, 4)]
    + [f"packed_{scalar}{size}" for scalar in _SCALARS for size in (2, 3, 4)]
    + [f"{scalar}{columns}x{rows}" for scalar in ("float", "half") for columns in (2, 3, 4) for rows in (2, 3, 4)]
    + [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
    + ["atomic_int", "atomic_uint", "atomic_float", "atomic_bool", "atomic_ulong", "void", "size_t", "unsigned"]
)
_TEMPLATES = frozenset({"vec", "atomic", "matrix", "simdgroup_matrix"})
_QUALIFIERS = frozenset(
    {"const", "volatile", "unsigned", "signed", "struct", "typename", "metal", "::", "static", "inline", "constexpr"}
)
_BOUNDARIES = frozenset({"", "(", ",", ";", "{", "}", ">", "<", "]", ":"})


def check(text: Text) -> None:
    """Raise CompileError at the first pointer or reference type without an address space."""
    types = _BUILT_IN | _declared_types(text)
    for index in range(1, len(text)):
        if text.at(index) not in ("*", "&") or not _ends_type(text, index - 1, types):
            continue
        after = text.at(index + 1)
        named = after.isidentifier() or after in ("*", ")", ">")
        if not named or (text.at(index) == "&" and after in ("&", "*", ")")) or after in ("operator",):
            continue
        if _has_no_space(text, index - 1, types):
            what = "pointer" if text.at(index) == "*" else "reference"
            text.refuse(index, f"{what} type must have explicit address space qualifier")


def member_names(text: Text, pattern: re.Pattern[str]) -> set[str]:
    """Return the names of structure members that match `pattern`, so that they are not mistaken for swizzles such as
    `.xy`."""
    found: set[str] = set()
    for index in range(len(text)):
        if text.at(index) not in ("struct", "union", "class"):
            continue
        opening = index + 1
        while opening < len(text) and text.at(opening) not in ("{", ";", "(", ")", ">", ","):
            opening += 1
        if text.at(opening) != "{":
            continue
        words = text.texts(opening, text.closing(opening))
        found |= {
            word
            for place, word in enumerate(words[:-1])
            if pattern.match(word) and words[place - 1] != "." and words[place + 1] in (";", ",", "[", "=", "{")
        }
    return found


def _declared_types(text: Text) -> set[str]:
    """Return the names of structures, aliases and type parameters of templates."""
    found: set[str] = set()
    for index in range(len(text)):
        word = text.at(index)
        if word in ("struct", "class", "union", "enum", "typename", "using") and text.at(index + 1).isidentifier():
            found.add(text.at(index + 1))
        elif word == "typedef":
            end = index
            while end < len(text) and text.at(end) != ";":
                end += 1
            found.add(text.at(end - 1))
    return found - {"namespace"}


def _ends_type(text: Text, index: int, types: frozenset[str] | set[str]) -> bool:
    word = text.at(index)
    if word in types:
        return text.at(index - 1) != "." and not (text.at(index - 1) == ">" and text.at(index - 2) == "-")
    if word == "const":
        return _ends_type(text, index - 1, types)
    return word == ">" and text.at(_template_start(text, index) - 1) in _TEMPLATES | types


def _template_start(text: Text, index: int) -> int:
    depth = 0
    while index >= 0:
        depth += (text.at(index) == ">") - (text.at(index) == "<")
        if depth == 0:
            return index
        index -= 1
    return 0


def _has_no_space(text: Text, index: int, types: frozenset[str] | set[str]) -> bool:
    """Return whether the type that ends at `index` names no address space."""
    while index >= 0:
        word = text.at(index)
        if word in SPACES:
            return False
        if word == ">":
            start = _template_start(text, index)
            if text.at(start - 1) not in _TEMPLATES | types:
                return True
            index = start - 1
        elif word not in types and word not in _QUALIFIERS and word not in _TEMPLATES:
            return word in _BOUNDARIES or word == "return"
        index -= 1
    return True

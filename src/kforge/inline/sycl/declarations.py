"""Finds the kernels in a SYCL source, so that the arguments of every launch can be checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kforge.inline import abi
from kforge.inline.errors import CompileError
from kforge.inline.grammar import (
    Signature,
    closing_bracket,
    read_parameters,
    read_statement,
    tokenize,
    without_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROPERTY = "SYCL_EXT_ONEAPI_FUNCTION_PROPERTY"
"""The macro that makes a function a kernel. SYCL's headers define it."""
_NAMESPACES = frozenset({"sycl", "ext", "oneapi", "syclext", "::"})
"""Words that stand before a type's name in SYCL's headers, such as `sycl::half` and `sycl::ext::oneapi::bfloat16`."""


class Declared(NamedTuple):
    """A kernel's signature, and for each of its parameters whether it is a pointer that the kernel may write to."""

    signature: Signature
    written: tuple[bool, ...]


def parse(source: str) -> dict[str, Declared]:
    """Return the kernels that a source defines, by name.

    Raises CompileError for a kernel without C linkage (its name would be mangled), for a parameter that Python cannot
    pass, and for two kernels of one name.
    """
    tokens = tokenize(source)
    found: dict[str, Declared] = {}
    for head, c_linkage in _definitions(tokens, 0, len(tokens), c_linkage=False):
        one = _declared(head, c_linkage=c_linkage)
        if one is None:
            continue
        if one.signature.name in found:
            raise CompileError(f"{one.signature.name}: defined twice; give each kernel its own name")
        found[one.signature.name] = one
    return found


def _definitions(tokens: list[str], position: int, end: int, *, c_linkage: bool) -> Iterator[tuple[list[str], bool]]:
    """Yield the head of every kernel that has a body, and whether it has C linkage."""
    while position < end:
        head, has_body, after = read_statement(tokens, position, end)
        opening = position + len(head)
        if has_body and (head[:1] == ["namespace"] or head == ["extern", '"C"']):
            inside = c_linkage or head[:1] == ["extern"]
            yield from _definitions(tokens, opening + 1, after - 1, c_linkage=inside)
        elif has_body and PROPERTY in head:
            yield head, c_linkage or '"C"' in head
        position = after


def _declared(head: list[str], *, c_linkage: bool) -> Declared | None:
    words = without_attributes(_without_properties(head))
    if "(" not in words:
        return None
    opening = words.index("(")
    name = words[opening - 1] if opening else ""
    if not name.isidentifier():
        return None
    if not c_linkage or "template" in words[:opening]:
        raise CompileError(f'{name}: a kernel must be a plain function with extern "C"')
    inner = [word for word in words[opening + 1 : closing_bracket(words, opening)] if word not in _NAMESPACES]
    parameters = read_parameters(name, inner)
    void = abi.element(["void"])
    assert void is not None
    return Declared(Signature(name, parameters, void), tuple(_written(inner)) if parameters else ())


def _without_properties(head: Sequence[str]) -> list[str]:
    kept: list[str] = []
    position = 0
    while position < len(head):
        if head[position] == PROPERTY and head[position + 1 : position + 2] == ["("]:
            position = closing_bracket(head, position + 1) + 1
        else:
            kept.append(head[position])
            position += 1
    return kept


def _written(words: Sequence[str]) -> Iterator[bool]:
    """Yield for each parameter whether it is a pointer whose target is not const: no `const` stands before its star."""
    parts = " ".join(words).split(",")
    for part in parts:
        before, star, _ = part.replace("[", "*").partition("*")
        yield bool(star) and "const" not in before.split()

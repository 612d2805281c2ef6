"""Reads the signatures of the `extern "C"` functions in a C++ source, so that the arguments of every call can be
checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.inline.errors import CompileError
from kforge.inline.grammar import (
    SPECIFIERS,
    Signature,
    closing_bracket,
    read_parameter,
    read_parameters,
    read_statement,
    tokenize,
    without_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_NOT_FUNCTIONS = frozenset({"typedef", "using", "template", "static", "static_assert", "namespace", "friend"})


def parse(source: str) -> dict[str, Signature]:
    """Return the signatures of all `extern "C"` functions, by name.

    A declaration without a body may belong to another library, so it is skipped if its types are not in the table.

    Raises CompileError for a definition with a type that Python cannot pass, for two different definitions of one name,
    and for a source without kernels.
    """
    declared: dict[str, Signature] = {}
    defined: dict[str, Signature] = {}
    for head, has_body in _statements(tokenize(source)):
        try:
            signature = _signature(head)
        except CompileError:
            if has_body:
                raise
            continue
        if signature is None:
            continue
        known = defined.get(signature.name)
        if has_body and known is not None and _shape(known) != _shape(signature):
            raise CompileError(
                f"{signature.name}: defined twice with different parameters; give each kernel its own name"
            )
        (defined if has_body else declared)[signature.name] = signature
    kernels = declared | defined
    if not kernels:
        raise CompileError(
            'the source has no kernel: write one as extern "C" void name(const float* x, int64_t n) { ... }'
        )
    return kernels


def _shape(signature: Signature) -> tuple[object, ...]:
    return signature.returns, tuple((p.element, p.pointer) for p in signature.parameters)


def _statements(tokens: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Yield every declaration with C linkage: its tokens before `;` or the body, and whether it has a body."""
    position = 0
    while position < len(tokens):
        if tokens[position : position + 2] != ["extern", '"C"']:
            position += 1
            continue
        position += 2
        if tokens[position : position + 1] == ["{"]:
            end = closing_bracket(tokens, position)
            position += 1
            while position < end:
                head, has_body, position = read_statement(tokens, position, end)
                yield head, has_body
        else:
            head, has_body, position = read_statement(tokens, position, len(tokens))
            yield head, has_body


def _signature(head: Sequence[str]) -> Signature | None:
    """Return the function that these tokens declare, or None if they declare something else. Raises CompileError
    if a parameter or the result has a type that cannot be passed."""
    words = [word for word in without_attributes(head) if word not in SPECIFIERS and word != '"C"']
    if "(" not in words:
        return None
    opening = words.index("(")
    before, name = words[: opening - 1], words[opening - 1] if opening else ""
    if not before or not name.isidentifier() or "=" in before or _NOT_FUNCTIONS & set(before):
        return None
    result = read_parameter(before, f"{name}: the result")
    if result.pointer or result.element.kind == "storage":
        raise CompileError(f"{name}: cannot return '{' '.join(before)}'; write results into a tensor that is passed in")
    closing = closing_bracket(words, opening)
    return Signature(name, read_parameters(name, words[opening + 1 : closing]), result.element)

"""Reads the signatures of a source's `extern "C"` functions, so that every launch can be checked.

The text is tokenized, not preprocessed: a signature hidden in a macro is not seen. Bodies are skipped whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.inline import abi
from kforge.inline.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel; the name is empty where the source gives none."""

    name: str
    element: abi.Element
    pointer: bool


@dataclass(frozen=True)
class Signature:
    """How a kernel is called."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: abi.Element


_TOKEN = re.compile(
    r"""
      (?P<blank>   \s+ | //(?:\\\n|[^\n])* | /\*.*?\*/ )
    | (?P<directive> ^[ \t]*\#(?:/\*.*?\*/|\\\n|[^\n])* )
    | (?P<string>  (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)" | (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*" )
    | (?P<number>  \.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])* )
    | (?P<char>    '(?:[^'\\\n]|\\.)*' )
    | (?P<word>    [^\W\d]\w* | :: | \.\.\. | . )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_QUALIFIERS = frozenset({"const", "volatile", "restrict", "__restrict", "__restrict__"})
_SPECIFIERS = frozenset({"extern", "inline", "__inline", "__inline__", "constexpr", "register"})
_ATTRIBUTES = frozenset({"__attribute__", "__declspec", "alignas"})
_NOT_FUNCTIONS = frozenset({"typedef", "using", "template", "static", "static_assert", "namespace", "friend"})
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def parse(source: str) -> dict[str, Signature]:
    """The signatures of all `extern "C"` functions, by name.

    A definition must be readable. A mere declaration may belong to a foreign library, so one with types
    that are not in the table is passed over.

    Raises CompileError for a definition with a type that cannot cross the border, for two definitions of one
    name that differ, and for a source with no kernel at all.
    """
    declared: dict[str, Signature] = {}
    defined: dict[str, Signature] = {}
    for head, has_body in _statements(_tokens(source)):
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


def _tokens(source: str) -> list[str]:
    return [match[0] for match in _TOKEN.finditer(source) if match.lastgroup not in ("blank", "directive")]


def _statements(tokens: list[str]) -> Iterator[tuple[list[str], bool]]:
    """Every declaration with C linkage, as (the tokens before its `;` or body, whether it has a body)."""
    position = 0
    while position < len(tokens):
        if tokens[position : position + 2] != ["extern", '"C"']:
            position += 1
            continue
        position += 2
        if tokens[position : position + 1] == ["{"]:
            end = _closing(tokens, position)
            position += 1
            while position < end:
                head, has_body, position = _statement(tokens, position, end)
                yield head, has_body
        else:
            head, has_body, position = _statement(tokens, position, len(tokens))
            yield head, has_body


def _statement(tokens: list[str], start: int, end: int) -> tuple[list[str], bool, int]:
    """One declaration from `start`: its head, whether a body follows, and where the next one begins."""
    position = start
    while position < end:
        word = tokens[position]
        if word == ";":
            return tokens[start:position], False, position + 1
        if word == "{":
            return tokens[start:position], True, _closing(tokens, position) + 1
        position = _closing(tokens, position) + 1 if word in _PAIRS else position + 1
    return tokens[start:end], False, end


def _closing(tokens: Sequence[str], start: int) -> int:
    """Where the bracket at `start` is closed; the end of the text where it never is."""
    opening, closing = tokens[start], _PAIRS[tokens[start]]
    depth = 0
    for position in range(start, len(tokens)):
        depth += (tokens[position] == opening) - (tokens[position] == closing)
        if depth == 0:
            return position
    return len(tokens)


def _signature(head: Sequence[str]) -> Signature | None:
    """The function that a declaration's head declares, or None when it declares something else."""
    words = [word for word in _without_attributes(head) if word not in _SPECIFIERS and word != '"C"']
    if "(" not in words:
        return None
    opening = words.index("(")
    before, name = words[: opening - 1], words[opening - 1] if opening else ""
    if not before or not name.isidentifier() or "=" in before or _NOT_FUNCTIONS & set(before):
        return None
    result = _parameter(before, f"{name}: the result")
    if result.pointer or result.element.kind == "storage":
        raise CompileError(f"{name}: cannot return '{' '.join(before)}'; write results into a tensor that is passed in")
    closing = _closing(words, opening)
    parameters = tuple(
        _parameter(part, f"{name}: parameter {index}")
        for index, part in enumerate(_split(words[opening + 1 : closing]), start=1)
    )
    for index, parameter in enumerate(parameters, start=1):
        if not parameter.pointer and parameter.element.ctype is None:
            raise CompileError(f"{name}: parameter {index} cannot be passed by value as {parameter.element.spelling}")
    return Signature(name, parameters, result.element)


def _without_attributes(head: Sequence[str]) -> list[str]:
    kept: list[str] = []
    position = 0
    while position < len(head):
        if head[position] in _ATTRIBUTES and head[position + 1 : position + 2] == ["("]:
            position = _closing(head, position + 1) + 1
        elif list(head[position : position + 2]) == ["[", "["]:
            position = _closing(head, position) + 1
        else:
            kept.append(head[position])
            position += 1
    return kept


def _split(words: Sequence[str]) -> list[list[str]]:
    """A parameter list, cut at its commas; `()` and `(void)` are empty."""
    if not words or list(words) == ["void"]:
        return []
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _parameter(words: Sequence[str], place: str) -> Parameter:
    """One `type name`, `type* name` or `type name[]`, whatever the qualifiers and their order."""
    bare = [word for word in words if word not in _QUALIFIERS and word not in ("std", "::")]
    array = "[" in bare
    if array:
        bare = bare[: bare.index("[")]
    stars = bare.count("*")
    split = bare.index("*") if stars else len(bare)
    if not stars:
        # Without a star, only what follows the type words can be the name.
        while split > 1 and not abi.is_type_word(bare[split - 1]):
            split -= 1
    names = [word for word in bare[split:] if word != "*"]
    element = abi.element(bare[:split])
    if element is None or stars + array > 1 or len(names) > 1 or not all(name.isidentifier() for name in names):
        raise CompileError(
            f"{place} '{' '.join(words)}' cannot be called from Python; "
            "use a pointer or a value of float, double, bool or a standard integer type"
        )
    return Parameter(names[0] if names else "", element, bool(stars + array))

"""Reads declarations in C-like sources: tokens, statements and parameter lists.

The text is not preprocessed, so macros are not expanded. Function bodies are skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.inline import abi
from kforge.inline.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel. The name is empty if the source gives none."""

    name: str
    element: abi.Element
    pointer: bool


@dataclass(frozen=True)
class Signature:
    """A kernel's name, parameters and return type."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: abi.Element


_TOKEN = re.compile(
    r"""
      (?P<directive> ^[ \t]*\#(?:/\*.*?\*/|\\\n|[^\n])* )
    | (?P<blank>   \n | [^\S\n]+ | //(?:\\\n|[^\n])* | /\*.*?\*/ )
    | (?P<string>  (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)" | (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*" )
    | (?P<number>  \.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])* )
    | (?P<char>    '(?:[^'\\\n]|\\.)*' )
    | (?P<word>    [^\W\d]\w* | :: | \.\.\. | . )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
SPECIFIERS = frozenset({"extern", "inline", "__inline", "__inline__", "constexpr", "register"})
_QUALIFIERS = frozenset({"const", "volatile", "restrict", "__restrict", "__restrict__", "__grid_constant__"})
_ATTRIBUTES = frozenset(
    {"__attribute__", "__declspec", "alignas", "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__"}
)
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def tokenize(source: str) -> list[str]:
    """Return the tokens of a source, without blanks, comments and preprocessor directives."""
    return [match[0] for match in _TOKEN.finditer(source) if match.lastgroup not in ("blank", "directive")]


def locate(source: str) -> list[tuple[str, int]]:
    """Return the tokens of a source with their offsets, for code that edits the text."""
    return [
        (match[0], match.start()) for match in _TOKEN.finditer(source) if match.lastgroup not in ("blank", "directive")
    ]


def read_statement(tokens: list[str], start: int, end: int) -> tuple[list[str], bool, int]:
    """Read one declaration from the position `start`. Returns its tokens before the body, whether a body follows, and
    the position after it."""
    position = start
    while position < end:
        word = tokens[position]
        if word == ";":
            return tokens[start:position], False, position + 1
        if word == "{":
            return tokens[start:position], True, closing_bracket(tokens, position) + 1
        position = closing_bracket(tokens, position) + 1 if word in _PAIRS else position + 1
    return tokens[start:end], False, end


def closing_bracket(tokens: Sequence[str], start: int) -> int:
    """Return the position of the bracket that closes the one at `start`, or the end of the text if none does."""
    opening, closing = tokens[start], _PAIRS[tokens[start]]
    depth = 0
    for position in range(start, len(tokens)):
        depth += (tokens[position] == opening) - (tokens[position] == closing)
        if depth == 0:
            return position
    return len(tokens)


def without_attributes(head: Sequence[str]) -> list[str]:
    """Return the tokens without attributes such as `__launch_bounds__(...)` and `[[...]]`."""
    kept: list[str] = []
    position = 0
    while position < len(head):
        if head[position] in _ATTRIBUTES and head[position + 1 : position + 2] == ["("]:
            position = closing_bracket(head, position + 1) + 1
        elif list(head[position : position + 2]) == ["[", "["]:
            position = closing_bracket(head, position) + 1
        else:
            kept.append(head[position])
            position += 1
    return kept


def read_parameters(name: str, words: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the parameters between the parentheses of a function. Raises CompileError for a type that cannot be
    passed."""
    parameters = tuple(
        read_parameter(part, f"{name}: parameter {index}") for index, part in enumerate(_split(words), start=1)
    )
    for index, parameter in enumerate(parameters, start=1):
        if not parameter.pointer and parameter.element.ctype is None:
            raise CompileError(f"{name}: parameter {index} cannot be passed by value as {parameter.element.spelling}")
    return parameters


def _split(words: Sequence[str]) -> list[list[str]]:
    """Return a parameter list, split at its commas. `()` and `(void)` give an empty list."""
    if not words or list(words) == ["void"]:
        return []
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def read_parameter(words: Sequence[str], place: str) -> Parameter:
    """Return one parameter, written as `type name`, `type* name` or `type name[]` with any qualifiers. Raises
    CompileError."""
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
            f"{place} '{' '.join(words)}' cannot be passed from Python; "
            "use a pointer or a value of float, double, bool or a standard integer type"
        )
    return Parameter(names[0] if names else "", element, bool(stars + array))

"""Sources as highlighted lines, and what changed between two of them. The only HTML in it is made here, escaped."""

from __future__ import annotations

import difflib
from itertools import groupby
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from kforge.visible import visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pygments.lexer import Lexer

LARGEST = 60_000
"""Most characters of a source that are highlighted; a longer one is shown plain, because colouring takes long."""
KERNEL_LINES = 3
"""A string of at least this many lines inside a Python program is taken for a kernel, and coloured as C++."""


COLOURS = {"k": "word", "s": "string", "c": "comment", "m": "number", "nf": "name", "nc": "name", "nb": "name"}
"""Classes of coloured text, by the beginnings of Pygments' short names. All other text has the colour of the page."""


def highlighted(source: str) -> Markup:
    """Return a Python source as HTML, with the kernels in its strings coloured as C++."""
    source = safe(source)
    if len(source) > LARGEST:
        return escape(source)
    from pygments.lexers.python import PythonLexer

    return Markup("").join(_coloured(source, PythonLexer(stripnl=False, ensurenl=False)))


def _coloured(source: str, lexer: Lexer) -> Iterator[Markup]:
    for kind, value in _joined(source, lexer):
        if kind == "s" and value.count("\n") >= KERNEL_LINES:
            from pygments.lexers.c_cpp import CppLexer

            quote = len(value) - len(value.lstrip("rRbBfFuU")) + 3  # a prefix such as `r` comes before the quotes
            yield _span("string", value[:quote])
            yield from _coloured(value[quote:-3], CppLexer(stripnl=False, ensurenl=False))
            yield _span("string", value[-3:])
        else:
            yield _span(COLOURS.get(kind) or COLOURS.get(kind[:1], ""), value)


def _joined(source: str, lexer: Lexer) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each token; a string, which has many tokens, in one piece."""
    from pygments import lex
    from pygments.token import STANDARD_TYPES, String

    def kind_of(token: Any) -> str:
        if token in String and token not in String.Doc:
            return "s"
        while token not in STANDARD_TYPES:
            token = token.parent
        return "c" if token in String.Doc else STANDARD_TYPES[token]

    for kind, group in groupby(lex(source, lexer), lambda each: kind_of(each[0])):
        yield kind, "".join(text for _, text in group)


def _span(name: str, value: str) -> Markup:
    return Markup('<span class="t-{}">{}</span>').format(name, value) if name else escape(value)


def changed(before: str, after: str) -> Markup:
    """Return a unified diff of two sources as HTML: a line each, marked as added, removed or kept."""
    lines = list(difflib.unified_diff(safe(before).splitlines(), safe(after).splitlines(), lineterm="", n=3))[2:]
    kinds = {"+": "added", "-": "removed", "@": "place"}
    shown = (Markup('<span class="{}">{}</span>').format(kinds.get(line[:1], "kept"), line or " ") for line in lines)
    return Markup("\n").join(shown)


def safe(source: str) -> str:
    """Return a source whose tabs are spaces and whose hidden characters are spelled out."""
    return visible_lines(source.replace("\r\n", "\n").expandtabs(4))

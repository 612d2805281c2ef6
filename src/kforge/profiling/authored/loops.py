"""Finds the loops of a C++ source by their text, so that samples and compiler remarks can be assigned to them."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HIDDEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
"""Matches comments and literals, in which brackets mean nothing."""
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_LOOP = re.compile(r"\b(?:for|while)\s*(?=\()")
_HEAD = re.compile(r"\s*(?:else\b|(?:for|while|if|switch)\b\s*(?:constexpr\b\s*)?(?=\())")
"""Matches the beginning of a statement that contains another statement."""
_PAIRS = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True)
class LoopSpan:
    """A loop of a source, by line numbers from 1."""

    first: int
    """Its first line, with the `#pragma` lines directly before it."""
    line: int
    """The line of its `for` or `while`."""
    last: int


def find(source: str) -> list[LoopSpan]:
    """Return the loops of a C++ source, in order of their first lines."""
    masked = _HIDDEN.sub(_blank, source)
    directives = {_line(match.start(), source): _line(match.end(), source) for match in _DIRECTIVE.finditer(masked)}
    text = _DIRECTIVE.sub(_blank, masked)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def line_of(at: int) -> int:
        return bisect_right(starts, at)

    found = []
    for match in _LOOP.finditer(text):
        line = first = line_of(match.start())
        while (before := _ending_at(directives, first - 1)) is not None:
            first = before
        end = _statement_end(text, _closed(text, match.end()))
        found.append(LoopSpan(first, line, line_of(max(match.start(), end - 1))))
    return found


def innermost(loops: Iterable[LoopSpan], line: int) -> LoopSpan | None:
    """Return the smallest loop that contains a line; None if none does."""
    around = [loop for loop in loops if loop.first <= line <= loop.last]
    return min(around, key=lambda loop: (loop.last - loop.first, -loop.line), default=None)


def shown(source: Sequence[str], line: int) -> str:
    """Return the text of a line, with its spaces reduced; empty if there is no such line."""
    return " ".join(source[line - 1].split()) if 1 <= line <= len(source) else ""


def _ending_at(directives: dict[int, int], line: int) -> int | None:
    """Return the first line of the preprocessor directive that ends in a line. None if none does."""
    return next((first for first, last in directives.items() if last == line), None)


def _line(at: int, source: str) -> int:
    return source.count("\n", 0, at) + 1


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _closed(text: str, at: int) -> int:
    """Return the index behind the bracket that closes the one at `at`; the text's end if none does."""
    waiting: list[str] = []
    for index in range(at, len(text)):
        if text[index] in _PAIRS:
            waiting.append(_PAIRS[text[index]])
        elif waiting and text[index] == waiting[-1]:
            waiting.pop()
            if not waiting:
                return index + 1
    return len(text)


def _statement_end(text: str, at: int) -> int:
    """Return the index behind the statement that begins at `at`."""
    while (head := _HEAD.match(text, at)) is not None:
        at = _closed(text, head.end()) if head[0].strip() != "else" else head.end()
    index = at
    while index < len(text):
        if text[index] in _PAIRS:
            closed = _closed(text, index)
            if text[index] == "{" and not text[at:index].strip():
                return closed
            index = closed
        elif text[index] in ";}":
            return index + 1
        else:
            index += 1
    return index

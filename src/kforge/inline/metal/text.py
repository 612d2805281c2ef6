"""A preprocessed source as words with lines, and the edits that are made to it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from kforge.inline.errors import CompileError
from kforge.inline.grammar import locate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SOURCE = "kernel.metal"
"""What messages about a source string call it."""
_MARKER = re.compile(r'^# (\d+) "([^"]*)"', re.MULTILINE)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Word:
    text: str
    start: int
    line: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass
class Text:
    """The words of a text, found by index; edits are collected and applied at the end."""

    source: str
    words: list[Word]
    _edits: list[tuple[int, int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, source: str) -> Text:
        """Lines are those of the user's file: the preprocessor's markers say which."""
        breaks = [match.start() for match in re.finditer("\n", source)]
        markers = [(match.start(), int(match[1])) for match in _MARKER.finditer(source)]
        starts = [start for start, _ in markers]

        def line(offset: int) -> int:
            row = bisect_right(breaks, offset - 1)
            which = bisect_right(starts, offset) - 1
            if which < 0:
                return row + 1
            start, number = markers[which]
            return number + row - bisect_right(breaks, start - 1) - 1

        return cls(source, [Word(text, start, line(start)) for text, start in locate(source)])

    def __len__(self) -> int:
        return len(self.words)

    def at(self, index: int) -> str:
        """The word there; empty outside of the text."""
        return self.words[index].text if 0 <= index < len(self.words) else ""

    def line(self, index: int) -> int:
        return self.words[min(index, len(self.words) - 1)].line if self.words else 1

    def texts(self, start: int, end: int) -> list[str]:
        return [word.text for word in self.words[start:end]]

    def adjacent(self, index: int) -> bool:
        """Whether nothing stands between this word and the next one."""
        return index + 1 < len(self.words) and self.words[index].end == self.words[index + 1].start

    def closing(self, start: int) -> int:
        """The index of the bracket that closes the one at `start`."""
        opening, closing = self.at(start), _CLOSING[self.at(start)]
        depth = 0
        for index in range(start, len(self.words)):
            depth += (self.words[index].text == opening) - (self.words[index].text == closing)
            if depth == 0:
                return index
        return len(self.words) - 1

    def closing_angle(self, start: int) -> int:
        """The index of the `>` that closes the `<` at `start`."""
        depth, index = 0, start
        while index < len(self.words):
            word = self.at(index)
            if word in _CLOSING:
                index = self.closing(index)
            depth += (word == "<") - (word == ">")
            if depth == 0:
                return index
            index += 1
        return len(self.words) - 1

    def is_attribute(self, index: int) -> bool:
        return self.at(index) == "[" and self.at(index + 1) == "[" and self.adjacent(index)

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace words from `start` up to `end`; line breaks inside stay, so lines keep their numbers."""
        first, last = self.words[start].start, self.words[end - 1].end
        kept = "\n" * self.source.count("\n", first, last)
        self._edits.append((first, last, text + kept))

    def blank(self, start: int, end: int) -> None:
        """Remove words; directives between them stay."""
        for word in self.words[start:end]:
            self._edits.append((word.start, word.end, " "))

    def result(self) -> str:
        pieces, position = [], 0
        for start, end, text in sorted(self._edits):
            if start < position:
                continue  # inside of what was replaced as a whole
            pieces += [self.source[position:start], text]
            position = end
        return "".join([*pieces, self.source[position:]])

    def refuse(self, index: int, message: str) -> NoReturn:
        refuse(self.line(index), message)


def refuse(line: int, message: str) -> NoReturn:
    """Raise a CompileError as the compiler would have worded it."""
    raise CompileError(f"{SOURCE}:{line}: error: {message}")


def split(words: Sequence[Word]) -> list[list[Word]]:
    """A list at its commas, those inside of brackets excepted."""
    parts: list[list[Word]] = [[]]
    depth = 0
    for word in words:
        depth += (word.text in "([{<") - (word.text in ")]}>")
        if word.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def spelled(words: Iterable[Word]) -> str:
    return " ".join(word.text for word in words)

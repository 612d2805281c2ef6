"""A preprocessed source as a list of words with line numbers, and edits to it."""

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
"""The file name of the source in messages."""
_MARKER = re.compile(r'^# (\d+) "([^"]*)"', re.MULTILINE)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Word:
    """One token of the source, with its offset and its line in the user's file."""

    text: str
    start: int
    line: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass
class Text:
    """The words of a source, by index. Edits are collected, and `result` applies them."""

    source: str
    words: list[Word]
    _edits: list[tuple[int, int, str]] = field(default_factory=list)

    @classmethod
    def read(cls, source: str) -> Text:
        """Return the words of a preprocessed source. Line numbers are those of the user's file, from the preprocessor's
        markers."""
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
        """Return the word at this index, or an empty string outside of the text."""
        return self.words[index].text if 0 <= index < len(self.words) else ""

    def line(self, index: int) -> int:
        return self.words[min(index, len(self.words) - 1)].line if self.words else 1

    def texts(self, start: int, end: int) -> list[str]:
        return [word.text for word in self.words[start:end]]

    def adjacent(self, index: int) -> bool:
        """Return whether there is no space between this word and the next one."""
        return index + 1 < len(self.words) and self.words[index].end == self.words[index + 1].start

    def closing(self, start: int) -> int:
        """Return the index of the word that closes the bracket at `start`; the last word's index if none does."""
        opening, closing = self.at(start), _CLOSING[self.at(start)]
        depth = 0
        for index in range(start, len(self.words)):
            depth += (self.words[index].text == opening) - (self.words[index].text == closing)
            if depth == 0:
                return index
        return len(self.words) - 1

    def closing_angle(self, start: int) -> int:
        """Return the index of the word `>` that closes the `<` at `start`; the last word's index if none does."""
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
        """Replace the words from `start` up to `end`. Line breaks between them are kept, so that line numbers stay the
        same."""
        first, last = self.words[start].start, self.words[end - 1].end
        kept = "\n" * self.source.count("\n", first, last)
        self._edits.append((first, last, text + kept))

    def blank(self, start: int, end: int) -> None:
        """Remove these words. Preprocessor lines between them stay."""
        for word in self.words[start:end]:
            self._edits.append((word.start, word.end, " "))

    def result(self) -> str:
        pieces, position = [], 0
        for start, end, text in sorted(self._edits):
            if start < position:
                continue  # inside a range that was replaced already
            pieces += [self.source[position:start], text]
            position = end
        return "".join([*pieces, self.source[position:]])

    def refuse(self, index: int, message: str) -> NoReturn:
        refuse(self.line(index), message)


def refuse(line: int, message: str) -> NoReturn:
    """Raise a CompileError in the form of a compiler's message."""
    raise CompileError(f"{SOURCE}:{line}: error: {message}")


def split(words: Sequence[Word]) -> list[list[Word]]:
    """Return the words, split at commas that are not inside brackets."""
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
    """Return the words as text, with blanks between them."""
    return " ".join(word.text for word in words)

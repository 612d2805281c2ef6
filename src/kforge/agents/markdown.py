"""Splits an answer into thinking, prose, code blocks and JSON. No text makes it raise."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST = 1_000_000
"""Most characters of an answer, or of a program in it: more than any model writes."""
TRIES = 12
"""Most positions that are tried for the end of a block, or the beginning of a value."""
_DEPTH = 2
"""Depth to which blocks inside blocks are followed: an answer wrapped in Markdown, and one more."""

_TAG = r"(think|thinking|reasoning)"
_THOUGHT = re.compile(rf"\s*<{_TAG}>.*?</\1>", re.DOTALL)
_THOUGHT_OPENS = re.compile(rf"\s*<{_TAG}>")
_THOUGHT_ENDS = re.compile(rf"</{_TAG}>")
_PYTHON = re.compile(r"(?:python|py)\d*$", re.IGNORECASE)
_BLANK = " \t"
_SHORTEST_FENCE = 3
_JSON_BEGINS = re.compile(r"[{\[]")


@dataclass(frozen=True)
class CodeBlock:
    """The text of one code block; `closed` is false when the answer ended before its fence did."""

    text: str
    closed: bool


class Fence(NamedTuple):
    """The fence that opens a block, and the blanks before it on its line."""

    indent: str
    marks: str


def plain(text: str) -> str:
    """Return the text with `\\n` as the only newline. The byte-order mark, NUL and lone surrogates, which no source
    file can hold, are removed."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "").removeprefix("\ufeff")
    return text.encode("utf-8", "ignore").decode("utf-8")


def without_thinking(text: str) -> str:
    """Return an answer without the thinking that some models send first; empty when the thinking never ended."""
    begin = 0
    while (thought := _THOUGHT.match(text, begin)) is not None:
        begin = thought.end()
    text = text[begin:]
    if _THOUGHT_OPENS.match(text):
        return ""
    # Chat templates often open the thinking themselves, so that only its end is sent.
    end = _THOUGHT_ENDS.search(text)
    return text[end.end() :] if end is not None and text[end.end() :].strip() else text


def code_blocks(answer: str, whole: Callable[[str], bool], depth: int = _DEPTH) -> Iterator[CodeBlock]:
    """Yield the code blocks of an answer in order, a block before the blocks inside it.

    A fence inside a program (for example in a docstring) looks like the end of its block. So the first closing line
    that leaves a `whole` text is taken, or the first at all when none does.
    """
    lines = answer.split("\n")
    start = 0
    while start < len(lines):
        opening = _opening(lines[start]) or _opening_behind_prose(lines[start])
        if opening is None:
            start += 1
            continue
        block, start = _block(lines, start, opening, whole)
        yield block
        if depth and not whole(block.text):
            yield from code_blocks(block.text, whole, depth - 1)


def _opening(line: str) -> Fence | None:
    """Return the fence that a line begins with; None if it begins with no fence.

    This uses no regular expression, because backtracking would take quadratic time.
    """
    body = line.lstrip(_BLANK)
    marks = body[: len(body) - len(body.lstrip(body[:1]))] if body.startswith(("`", "~")) else ""
    if len(marks) < _SHORTEST_FENCE or "`" in body[len(marks) :]:
        return None
    return Fence(line[: len(line) - len(body)], marks)


def _opening_behind_prose(line: str) -> Fence | None:
    """Return the fence at the end of a line of prose, as in "Here it is: ```python"; None if the line ends
    otherwise."""
    text = line.rstrip(_BLANK)
    language = _PYTHON.search(text)
    marks = _marks_at_end(text[: language.start()].rstrip(_BLANK)) if language is not None else ""
    return Fence("", marks) if len(marks) >= _SHORTEST_FENCE else None


def _code_before_closing(line: str, fence: Fence) -> str | None:
    """Return the text of a line before the marks that close a block; None where the line closes none."""
    text = line.rstrip(_BLANK)
    marks = _marks_at_end(text)
    closes = len(marks) >= len(fence.marks) and marks[0] == fence.marks[0]
    return text[: len(text) - len(marks)] if closes else None


def _marks_at_end(text: str) -> str:
    return text[len(text.rstrip(text[-1:])) :] if text.endswith(("`", "~")) else ""


def _block(lines: list[str], start: int, opening: Fence, whole: Callable[[str], bool]) -> tuple[CodeBlock, int]:
    """Return the block that the fence `opening` at line `start` opens, and the index of the line after the block.

    The block ends at the first closing fence before which the text is `whole`, or else at the first closing fence. If
    there is no closing fence, the block goes to the end of the answer and is not `closed`.
    """
    first: tuple[CodeBlock, int] | None = None
    tries = 0
    for end in range(start + 1, len(lines)):
        code = _code_before_closing(lines[end], opening)
        if code is None:
            continue
        alone = not code.strip()
        body = lines[start + 1 : end] if alone else [*lines[start + 1 : end], code]
        found = CodeBlock(_unindented(body, opening.indent), closed=True), end + 1
        if whole(found[0].text):
            return found
        # A fence after code on the same line counts only when it leaves something whole.
        first = first or (found if alone else None)
        tries += 1
        if tries == TRIES:
            break
    if first is not None:
        return first
    return CodeBlock(_unindented(lines[start + 1 :], opening.indent), closed=False), len(lines)


def _unindented(body: list[str], indent: str) -> str:
    """Return a block's text without the indentation of its fence, or of its first line where that is deeper."""
    text = "\n".join(line.removeprefix(indent) for line in body)
    return textwrap.dedent(text) if text.lstrip("\n").startswith((" ", "\t")) else text


def json_values(text: str) -> Iterator[object]:
    """Yield the JSON objects and lists in a text, at any position."""
    decoder = json.JSONDecoder(strict=False)
    position = 0
    for _ in range(TRIES):
        begin = _JSON_BEGINS.search(text, position)
        if begin is None:
            return
        try:
            value, position = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            position = begin.end()
        else:
            yield value


def json_fault(text: str) -> str | None:
    """Return what is wrong with the first JSON object of a text, and where; None where it is valid or missing."""
    begin = text.find("{")
    if begin < 0:
        return None
    try:
        json.JSONDecoder(strict=False).raw_decode(text, begin)
    except json.JSONDecodeError as error:
        return f"{error.msg[:1].lower()}{error.msg[1:]}, at line {error.lineno} column {error.colno} of the answer"
    except (ValueError, RecursionError):
        return "it is nested too deeply"
    return None

"""Lines of text for people: the one place where the command line prints, and foreign text is made harmless.

Reasons, names and logs come from candidates, compilers, problems, models and files. Whatever in them a terminal would
obey is escaped here (`kforge.visible`), and rich's markup is never interpreted.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from kforge.visible import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

LONGEST_NOTE = 4000
"""Characters of a note: it may quote a name from a file of others, of any length."""
HANGING = "  | "
"""Before what continues a line: no line begins so, and none can be made to look like two by its length."""


def say(text: str) -> None:
    """Print one line on standard output. Files and pipes get it whole, since a program may read it."""
    print(_fitted(visible(text), sys.stdout), flush=True)


def say_page(text: str) -> None:
    """Print a text of several lines on standard output."""
    print("\n".join(_fitted(line, sys.stdout) for line in visible_lines(text).split("\n")))


def note(message: str) -> None:
    """Print one line about the command itself on standard error."""
    shown = message if len(message) <= LONGEST_NOTE else f"{message[:LONGEST_NOTE]}..."
    print(_fitted(f"kforge: {visible(shown)}", sys.stderr), file=sys.stderr)


def note_progress(text: str) -> None:
    """Print one line of progress on standard error."""
    print(_fitted(visible(text), sys.stderr), file=sys.stderr, flush=True)


def say_table(table: RenderableType) -> None:
    """Print a table on standard output, whose title and cells are `plain`. Its title may be wider than itself."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if isinstance(table, Table) and table.title:
        console.print(Line(str(table.title), "table.title"))
        table.title = None
    console.print(table)


def plain(text: str, style: str = "") -> Text:
    """Text for the cell of a table of rich's that means nothing but itself: `[bold]` stays what it is."""
    from rich.text import Text

    return Text(visible(text), style=style, overflow="fold")


class Line:
    """A line for rich that means nothing but itself, in pieces as `wrapped` makes them."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text = visible(text)
        self.style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """See rich's console protocol."""
        from rich.text import Text

        yield Text(wrapped(self.text, options.max_width), style=self.style, no_wrap=True, overflow="ignore")


def wrapped(text: str, columns: int) -> str:
    """The line in pieces of at most this width, each but the first with a mark; a word that is longer is cut."""
    margin = text[: len(text) - len(text.lstrip())]
    pieces, mark = [], ""
    while text:
        piece, text = _split(text, max(columns - len(mark), 1))
        pieces.append(mark + piece)
        mark = margin[: columns // 2] + HANGING
    return "\n".join(pieces)


def _fitted(text: str, stream: TextIO) -> str:
    """For a terminal, which would go on in its first column what does not fit."""
    if not stream.isatty():
        return text
    with suppress(LookupError, UnicodeError):  # as the stream will write it, maybe with escapes for what it cannot
        text = text.encode(stream.encoding, stream.errors or "strict").decode(stream.encoding)
    return wrapped(text, shutil.get_terminal_size().columns)


def _split(text: str, room: int) -> tuple[str, str]:
    """What fits, and the rest without the spaces between them."""
    ends = itertools.accumulate(map(_cells, text))
    end = next((at for at, used in enumerate(ends) if used > room), None)
    if end is None:
        return text, ""
    space = text.rfind(" ", 0, end + 1)
    if text[: max(space, 0)].strip():
        return text[:space].rstrip(), text[space:].lstrip()
    return text[: max(end, 1)], text[max(end, 1) :].lstrip()


def _cells(letter: str) -> int:
    """The most columns that some terminal draws a letter in: they do not agree on those of East Asia, nor on marks."""
    if letter.isascii():
        return 1
    if unicodedata.category(letter) == "Cs":  # half of a pair: a stream may write it as an escape
        return len("\\udc80")
    return 2 if unicodedata.east_asian_width(letter) in "WFA" else 1

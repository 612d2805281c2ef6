"""Prints lines of text for people. Only this module prints, and it makes foreign text harmless.

Reasons, names and logs come from candidates, compilers, problems, models and files. Characters in them that a terminal
would obey are escaped here (`kforge.visible`), and rich's markup is never interpreted.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import unicodedata
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from kforge.cli.output import verbosity
from kforge.visible import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

LONGEST = 8000
"""Most characters of a line or a cell, which may quote a name or a reason of any length from a file made by others."""
HANGING = "  | "
"""Prefix of a continuation line. No other line begins with it, so one long line cannot look like two."""


def shown(text: str) -> str:
    """Return foreign text for one line or one cell: harmless, and short enough to be wrapped quickly."""
    return visible(text if len(text) <= LONGEST else f"{text[:LONGEST]}...")


def say(text: str) -> None:
    """Print one line on standard output. Files and pipes get it in one piece, since a program may read it."""
    print(_fitted(shown(text), sys.stdout), flush=True)


def say_page(text: str) -> None:
    """Print a text of several lines on standard output."""
    print("\n".join(_fitted(line, sys.stdout) for line in visible_lines(text).split("\n")))


def note(message: str) -> None:
    """Print one line about the command itself on standard error."""
    _print_error_line(f"kforge: {shown(message)}")


def note_progress(text: str) -> None:
    """Print one line of progress on standard error; none with `-q`."""
    if verbosity.level() is verbosity.Verbosity.QUIET:
        return
    _print_error_line(shown(text))


def _print_error_line(text: str) -> None:
    # text and line end in one call: another thread could print between two
    print(f"{_fitted(text, sys.stderr)}\n", end="", file=sys.stderr, flush=True)


def say_table(table: RenderableType) -> None:
    """Print a table on standard output. Its title and cells are `plain`. The title may be wider than the table."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if isinstance(table, Table) and table.title:
        console.print(Line(str(table.title), "table.title"))
        table.title = None
    console.print(table)


def plain(text: str, style: str = "") -> Text:
    """Return text for the cell of a rich table, without markup: `[bold]` is shown as it is."""
    from rich.text import Text

    return Text(shown(text), style=style, overflow="fold")


class Line:
    """A line for rich without markup, in pieces as `wrapped` makes them."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text = shown(text)
        self.style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the line broken to the console's width. This is rich's console protocol."""
        from rich.text import Text

        yield Text(wrapped(self.text, options.max_width), style=self.style, no_wrap=True, overflow="ignore")


def wrapped(text: str, columns: int) -> str:
    """Return the text broken by newlines into lines of at most `columns` columns. Every line but the first begins with
    the indentation of the text and HANGING. A word that is longer than a line is cut."""
    margin = text[: len(text) - len(text.lstrip())]
    pieces, mark, start = list[str](), "", 0
    while start < len(text):
        end, following = _split(text, start, max(columns - len(mark), 1))
        pieces.append(mark + text[start:end])
        start, mark = following, margin[: columns // 2] + HANGING
    return "\n".join(pieces)


def _fitted(text: str, stream: TextIO) -> str:
    """Return the line broken to the width of a terminal, which would itself continue it in the first column."""
    if not stream.isatty():
        return text
    with suppress(LookupError, UnicodeError):  # measure the line as the stream writes it, maybe with escapes
        text = text.encode(stream.encoding, stream.errors or "strict").decode(stream.encoding)
    return wrapped(text, shutil.get_terminal_size().columns)


def _split(text: str, start: int, room: int) -> tuple[int, int]:
    """Return where the piece that begins at `start` ends, and where the rest begins. The spaces between them are left
    out."""
    ends = itertools.accumulate(_cells(text[at]) for at in range(start, len(text)))
    end = next((at for at, used in enumerate(ends, start) if used > room), None)
    if end is None:
        return len(text), len(text)
    space = text.rfind(" ", start, end + 1)
    before = text[start : max(space, start)].rstrip()
    if before:
        return start + len(before), _first_letter(text, space)
    end = max(end, start + 1)
    return end, _first_letter(text, end)


def _first_letter(text: str, start: int) -> int:
    """Return the position of the first letter after spaces."""
    return next((at for at in range(start, len(text)) if not text[at].isspace()), len(text))


def _cells(letter: str) -> int:
    """Return the largest width in columns at which terminals draw a letter: they disagree on East Asian letters and on
    marks."""
    if letter.isascii():
        return 1
    if unicodedata.category(letter) == "Cs":  # half of a surrogate pair: a stream may write it as an escape
        return len("\\udc80")
    return 2 if unicodedata.east_asian_width(letter) in "WFA" else 1

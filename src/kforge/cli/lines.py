"""Lines of text on standard output, broken between words where a terminal is narrower."""

from __future__ import annotations

import shutil
import sys
import textwrap

HANGING = "  "
"""What continues a line stands further to the right."""


def say(text: str) -> None:
    """Print one line. Files and pipes get it whole, since a program may read it."""
    print(wrapped(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)


def wrapped(text: str, columns: int) -> str:
    """The line in pieces of at most this width; a longer word, such as a path, stays whole."""
    margin = text[: len(text) - len(text.lstrip())]
    pieces = textwrap.wrap(
        text, columns, subsequent_indent=margin + HANGING, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(pieces)

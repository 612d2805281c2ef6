"""Replaces characters that a stream cannot encode, on an ASCII terminal for example, so that printing raises no error.

Such a character is replaced by ASCII (an arrow by `->`, the micro sign by `u`) or escaped. A byte of a file name that
is not UTF-8 is escaped, too (`\\xff`).
"""

from __future__ import annotations

import codecs
import io
import sys

SPELLED = {
    **dict(zip("▁▂▃▄▅▆▇█", "_.-:=+*#", strict=True)),  # bars of a sparkline
    "→": "->",
    "µ": "u",
    "–": "-",  # noqa: RUF001 - it stands in tables, for nothing to tell
    "—": "-",
    "…": "...",
    "·": "-",
    "×": "x",  # noqa: RUF001 - between sizes
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "±": "+-",
    "‘": "'",  # noqa: RUF001 - compilers quote with it
    "’": "'",  # noqa: RUF001
    "“": '"',
    "”": '"',
}
"""ASCII replacements for the characters that kforge's own sentences, rich and compilers use."""

_NAME = "kforge.spelled"
_BYTES = range(0xDC80, 0xDD00)
"""The code points by which Python represents bytes of a file name that are not UTF-8."""


def spell_unprintable() -> None:
    """Make both standard streams replace characters that they cannot encode."""
    codecs.register_error(_NAME, _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(SPELLED.get(letter) or _escaped(letter) for letter in letters), error.end


def _escaped(letter: str) -> str:
    number = ord(letter)
    if number in _BYTES:
        return f"\\x{number - 0xDC00:02x}"
    return letter.encode("ascii", "backslashreplace").decode()

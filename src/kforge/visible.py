"""Makes foreign text safe to show: characters that a terminal would obey, or a reader would not see, are escaped.

Texts of candidates, compilers, problems, models and files go through `visible` before they reach a screen or a log. An
escape sequence, a carriage return or a bidirectional override could otherwise show a false verdict.
"""

from __future__ import annotations

import shlex
import unicodedata

_OBEYED = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs", "Cn", "Co", "Me"})
"""Unicode categories: control characters, format characters (bidirectional, zero width, tags), line and paragraph ends,
all spaces except the ASCII one, characters that Unicode has not defined or that only some fonts have, and marks that
are drawn around or over a letter.

Lone surrogates are left to the stream's encoder, which knows which of them stand for bytes of a file's name."""
_BLANK = frozenset(
    {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0, 0x1D159}
    | set(range(0xFE00, 0xFE10))
    | set(range(0xE0000, 0xE1000))
)
"""Characters that the categories miss: those that Unicode calls ignorable, and letters and symbols that are blank."""
_MARKS = 2
"""Most combining marks on one letter; more would reach into the lines above and below."""
_OVERLAY = 1
"""Unicode's combining class of strokes through a letter."""
_SPELLED = {"\n": "\\n", "\r": "\\r", "\t": " "}


def visible(text: str) -> str:
    """Return the text on one line, with every character either shown as it is or escaped (`\\x1b`, `\\u202e`)."""
    if text.isascii() and text.isprintable():
        return text
    shown, marks = [], 0
    for letter in text:
        marks = marks + 1 if unicodedata.category(letter) == "Mn" else 0
        shown.append(_escaped(letter) if marks > _MARKS or _is_hidden(letter) else letter)
    return "".join(shown)


def command(*parts: object) -> str:
    """Return a command line that a user may copy into a shell, with its parts quoted."""
    return shlex.join(str(part) for part in parts)


def visible_lines(text: str) -> str:
    """Return a text of several lines with each line made `visible`; line ends are kept."""
    return "\n".join(map(visible, text.split("\n")))


def _is_hidden(letter: str) -> bool:
    if letter == " ":
        return False
    return unicodedata.category(letter) in _OBEYED or ord(letter) in _BLANK or unicodedata.combining(letter) == _OVERLAY


def _escaped(letter: str) -> str:
    number = ord(letter)
    if number < 0x100:
        return _SPELLED.get(letter, f"\\x{number:02x}")
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"

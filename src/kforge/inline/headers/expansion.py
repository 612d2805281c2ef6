"""Puts the text of <kforge/math.h> into a source."""

from __future__ import annotations

import re
from pathlib import Path

from kforge.inline.errors import CompileError

FOLDER = Path(__file__).parent.parent / "include"
"""Folder of the headers."""
HEADER = "kforge/math.h"
"""The header that sources may include. The other files in its folder are parts of it."""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"](kforge/[^>\"\n]*)[>\"].*$", re.MULTILINE)


def expanded(source: str, name: str) -> str:
    """Return the source with the header's text in the place of its `#include`. Lines keep their numbers.

    `name` is the source's name in messages. Raises CompileError for a header that kforge does not have.
    """

    def text(found: re.Match[str]) -> str:
        line = source.count("\n", 0, found.start()) + 1
        if found[1] != HEADER:
            raise CompileError(f"{name}:{line}: error: there is no header <{found[1]}>; kforge has <{HEADER}>")
        return f'#line 1 "{HEADER}"\n{_text(HEADER)}\n#line {line + 1} "{name}"'

    return _INCLUDE.sub(text, source)


def included(source: str) -> str:
    """Return the texts of all headers that a source includes, for a cache key. An unknown header is left to the
    compiler."""
    return "".join(_text(name) for name in _INCLUDE.findall(source) if (FOLDER / name).is_file())


def read(name: str) -> str:
    """Return the text of a file of the header's folder."""
    return (FOLDER / name).read_text(encoding="utf-8")


def _text(name: str) -> str:
    """Return the text of a header, with the text of the headers that it includes."""
    return _INCLUDE.sub(lambda found: _text(found[1]), read(name))

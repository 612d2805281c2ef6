"""Parses Python source without executing it. Every defect of the text becomes one reason."""

from __future__ import annotations

import ast
import codecs
import re
import tokenize
import warnings

LONGEST = 4 * 1024 * 1024
"""Most characters of a source. The tree of a longer one takes gigabytes; a table of that size belongs in a tensor."""

_UTF8 = frozenset({"utf-8", "utf-8-sig"})
_BEGIN_WITH_ASCII = frozenset({"ascii", "iso8859-1", "iso8859-15", "cp1252"})
"""Encodings in which ASCII text has the same bytes as in UTF-8."""


class Unparsable(Exception):
    """The text cannot be parsed as Python."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason, line)
        self.reason = reason
        self.line = line


def parsed(source: str) -> ast.Module:
    """Return the syntax tree. Raises Unparsable, also where the parser runs out of stack or memory."""
    if len(source) > LONGEST:
        size, most = (f"{count / 2**20:.0f} MiB" for count in (len(source), LONGEST))
        raise Unparsable(f"the source is too long: {size}, of which at most {most} are parsed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is not our concern, and warnings quote the text
            tree = ast.parse(source)
    except SyntaxError as error:
        raise Unparsable(error.msg, error.lineno) from None
    except (RecursionError, MemoryError):
        raise Unparsable("the source is nested too deeply to parse") from None
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        said = "the source contains a lone surrogate (half of a UTF-16 pair), which cannot be saved as UTF-8; remove it"
        raise Unparsable(said, line) from None
    except ValueError as error:
        raise Unparsable(str(error)) from None
    _check_encoding(source)
    return tree


def _check_encoding(source: str) -> None:
    """Raise Unparsable if the text, written to a file in UTF-8, would be read as another program.

    A comment in the first two lines may declare an encoding (PEP 263). Python obeys it in a file, but not in a string.
    """
    lines = re.split(r"\r\n|\r|\n", source, maxsplit=2)[:2]  # as Python ends them
    try:
        declared, _ = tokenize.detect_encoding(iter([f"{line}\n".encode() for line in lines]).__next__)
        name = codecs.lookup(declared).name
    except (SyntaxError, LookupError):
        raise Unparsable("the source declares an encoding that Python does not know; kforge writes UTF-8") from None
    if name not in _UTF8 and not (name in _BEGIN_WITH_ASCII and source.isascii()):
        raise Unparsable(f"the source declares the encoding {name}, and kforge writes UTF-8: leave the declaration out")

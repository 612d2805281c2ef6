"""Python source as a syntax tree: whatever is wrong with a text becomes one reason, and nothing is executed."""

from __future__ import annotations

import ast
import warnings

LONGEST = 4 * 1024 * 1024
"""Characters of a source. The tree of a longer one takes gigabytes; a table of that size belongs into a tensor."""


class Unparsable(Exception):
    """The text is no Python that can be parsed here."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason, line)
        self.reason = reason
        self.line = line


def parsed(source: str) -> ast.Module:
    """The syntax tree. Raises Unparsable, also where the parser gives up for lack of stack or memory."""
    if len(source) > LONGEST:
        size, most = (f"{count / 2**20:.0f} MiB" for count in (len(source), LONGEST))
        raise Unparsable(f"the source is too long: {size}, of which at most {most} are parsed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is its author's business, and warnings quote the text
            return ast.parse(source)
    except SyntaxError as error:
        raise Unparsable(error.msg, error.lineno) from None
    except (RecursionError, MemoryError):
        raise Unparsable("the source is nested too deeply to parse") from None
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        raise Unparsable("the source holds half of a surrogate pair, which is no character", line) from None
    except ValueError as error:
        raise Unparsable(str(error)) from None

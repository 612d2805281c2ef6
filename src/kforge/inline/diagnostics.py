"""Cuts a compiler's output down to the lines that help to mend the source."""

from __future__ import annotations

import re

MAX_LINES = 40
_DIAGNOSTIC = re.compile(
    r"^\S.*?: (?P<kind>fatal error|catastrophic error|error|warning|note|sorry, unimplemented|remark): "
)
_LINKER = re.compile(r"undefined reference to|undefined symbol|multiple definition of|cannot find -l|\bld: error")
_ASSEMBLER = re.compile(r"ptxas\b.*?\b(?:error|fatal) +: ")
_ERRORS = frozenset({"error", "fatal error", "catastrophic error", "sorry, unimplemented"})


def trim(log: str, max_lines: int = MAX_LINES) -> str:
    """The errors with their source context, without the warnings and notes between them.

    A log in which no error is recognized is kept from its end, where a compiler that dies says why.
    """
    kept: list[str] = []
    in_error = False
    for line in log.splitlines():
        diagnostic = _DIAGNOSTIC.match(line)
        if diagnostic:
            # collect2 only counts the linker's own lines, which stand above it.
            in_error = diagnostic["kind"] in _ERRORS and not line.startswith("collect2:")
        elif line and not line[0].isspace():
            # Not the indented context of the diagnostic above: "In function …", a linker's line, a summary.
            in_error = bool(_LINKER.search(line) or _ASSEMBLER.match(line))
        if in_error and line.strip():
            kept.append(line.rstrip())
    if not kept:
        return "\n".join(log.strip().splitlines()[-max_lines:])
    if len(kept) > max_lines:
        kept[max_lines - 1 :] = [f"... and {len(kept) - max_lines + 1} more lines"]
    return "\n".join(kept)

"""Reduces a compiler's output to the lines that help to fix the source."""

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
    """Return the errors with their source context, without warnings and notes.

    If no error is recognised, return the last lines of the log, where a compiler that crashes says why.
    """
    kept: list[str] = []
    in_error = False
    for line in log.splitlines():
        diagnostic = _DIAGNOSTIC.match(line)
        if diagnostic:
            # collect2 only summarizes the linker's own lines above it.
            in_error = diagnostic["kind"] in _ERRORS and not line.startswith("collect2:")
        elif line and not line[0].isspace():
            # Not indented, so no context of the diagnostic above: "In function …", a linker's line, a summary.
            in_error = bool(_LINKER.search(line) or _ASSEMBLER.match(line))
        if in_error and line.strip():
            kept.append(line.rstrip())
    if not kept:
        return "\n".join(log.strip().splitlines()[-max_lines:])
    if len(kept) > max_lines:
        kept[max_lines - 1 :] = [f"... and {len(kept) - max_lines + 1} more lines"]
    return "\n".join(kept)

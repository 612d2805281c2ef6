"""Puts foreign text into a prompt: cut to what helps, and fenced so that it cannot end its own fence."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BACKTICKS = re.compile(r"`{3,}")


def trim(text: str, lines: int, chars: int) -> str:
    """Return at most `lines` lines and `chars` characters of a log, head and tail, with a note on what is left out.

    Both ends stay because compilers put the cause first and tracebacks put it last.
    """
    kept = [line.rstrip() for line in _ESCAPES.sub("", text).strip("\n").splitlines()]
    if len(kept) > lines:
        head, tail = (lines + 1) // 2, lines // 2
        note = f"[... {len(kept) - head - tail} lines left out ...]"
        kept = [*kept[:head], note, *kept[len(kept) - tail :]]
    short = "\n".join(kept)
    if len(short) <= chars:
        return short
    head, tail = (chars + 1) // 2, chars // 2
    return f"{short[:head]}\n[... {len(short) - head - tail} characters left out ...]\n{short[len(short) - tail :]}"


def fenced(text: str, language: str = "") -> str:
    """Return a Markdown code block whose fence is longer than any inside the text."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"

"""Makes the diff of two programs, and prints it: in colours on a terminal, plain elsewhere."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

from kforge.cli.output.lines import Line, say_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.records import Attempt

STYLES = {"+": "green", "-": "red", "@": "cyan"}
"""Colours of a line by its first letter. rich leaves them out where NO_COLOR is set or the terminal has none."""


def unified(before: str, after: str, names: tuple[str, str]) -> str:
    """Return the unified diff of two sources; empty if they are equal."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="")
    return "\n".join(lines)


def of_attempts(attempts: tuple[Attempt, ...]) -> Iterator[str]:
    """Yield the diff between each program and the program that it was made from. A program without one is shown
    completely."""
    for attempt in attempts:
        if attempt.candidate is None:
            continue
        parent = attempts[attempt.parent] if attempt.parent is not None else None
        before = parent.candidate.source if parent is not None and parent.candidate is not None else ""
        origin = f"attempt {parent.index}" if parent is not None and before else "nothing"
        difference = unified(before, attempt.candidate.source, (origin, f"attempt {attempt.index}"))
        yield difference or f"attempt {attempt.index} is the program of {origin}, unchanged"


def say_diff(text: str) -> None:
    """Print a unified diff on standard output."""
    if not sys.stdout.isatty():
        say_page(text)
        return
    from rich.console import Console

    console = Console()
    for line in text.split("\n"):
        console.print(Line(line, STYLES.get(line[:1], "")))

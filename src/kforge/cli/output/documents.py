"""Prints the JSON documents of `--json`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from kforge.documents import attempt, evaluation, platform, run, sanitization

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["attempt", "evaluation", "platform", "print_json", "print_lines", "run", "sanitization"]


def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Print JSON Lines."""
    sys.stdout.writelines(lines)
    sys.stdout.flush()

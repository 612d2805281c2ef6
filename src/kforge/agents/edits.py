"""Reads search/replace edits from an answer, and applies them to the last program.

    <<<<<<< SEARCH
    lines of the program, exactly as they are
    =======
    the lines that take their place
    >>>>>>> REPLACE

The searched lines must occur exactly once: a guess at what was meant would make a program that the model did not write.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kforge.records import GenerationFailure

_OPENS = re.compile(r"^(?P<indent>[ \t]*)<{5,9} ?SEARCH[ \t]*$", re.IGNORECASE)
_DIVIDES = re.compile(r"^[ \t]*={5,9}[ \t]*$")
_CLOSES = re.compile(r"^[ \t]*>{5,9} ?REPLACE[ \t]*$", re.IGNORECASE)

LONGEST_QUOTE = 80
"""Most characters of a searched line that a message quotes: enough to find it, and one line on most screens."""


class Replacement(NamedTuple):
    """One replacement: these lines of the program, and the lines that take their place."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def read_edits(answer: str) -> list[Replacement] | GenerationFailure:
    """Return the edits of an answer in order; an empty list if it has none. A failure says which edit is incomplete."""
    edits: list[Replacement] = []
    parts: list[list[str]] = []
    indent = ""
    for line in answer.split("\n"):
        opening = _OPENS.match(line)
        if opening is not None:
            if parts:
                return _broken(len(edits) + 1, "a second SEARCH line comes before its REPLACE line")
            parts, indent = [[]], opening["indent"]
        elif len(parts) == 1 and _DIVIDES.match(line):
            parts.append([])
        elif len(parts) == 2 and _CLOSES.match(line):
            edits.append(Replacement(*(tuple(part) for part in parts)))
            parts = []
        elif parts:
            parts[-1].append(line.removeprefix(indent))
    if parts:
        missing = "=======" if len(parts) == 1 else ">>>>>>> REPLACE"
        return _broken(len(edits) + 1, f"the answer ends before its line {missing}")
    return edits


def apply_edits(source: str, edits: list[Replacement]) -> str | GenerationFailure:
    """Return the program after all edits, made one after the other. Returns a failure if an edit cannot be applied, or
    if the edits change nothing."""
    lines = source.rstrip("\n").split("\n")
    for number, (search, replace) in enumerate(edits, 1):
        if not any(line.strip() for line in search):
            return _broken(number, "it has no text to search for")
        places = [at for at in range(len(lines) - len(search) + 1) if lines[at : at + len(search)] == list(search)]
        if len(places) != 1:
            return _broken(number, _why_not_found(lines, search) if not places else _why_ambiguous(search, places))
        lines[places[0] : places[0] + len(search)] = replace
    changed = "\n".join(lines) + "\n"
    if changed.strip() == source.strip():
        return GenerationFailure(reason="the edits change nothing: the program is the same as before")
    return changed


def _broken(number: int, why: str) -> GenerationFailure:
    return GenerationFailure(reason=f"edit {number} cannot be applied: {why}")


def _why_not_found(lines: list[str], search: tuple[str, ...]) -> str:
    """Say which searched line the program lacks, or that all are there and not in this order."""
    present, alike = set(lines), {" ".join(line.split()) for line in lines}
    lacking = next((line for line in search if line not in present), None)
    if lacking is None:
        return "the program has its lines, and not one after the other as they are searched for"
    if " ".join(lacking.split()) in alike:
        return f"the line {_quoted(lacking)} is in the program with other spaces, and must be the same to the letter"
    return f"the line {_quoted(lacking)} is not in the program"


def _why_ambiguous(search: tuple[str, ...], places: list[int]) -> str:
    at = ", ".join(str(place + 1) for place in places[:5])
    return (
        f"its text, which begins with {_quoted(search[0])}, is in the program {len(places)} times (lines {at}); "
        "search for more lines around it"
    )


def _quoted(line: str) -> str:
    text = line.strip()
    return repr(text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…")

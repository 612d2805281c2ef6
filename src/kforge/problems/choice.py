"""Chooses the problems of a suite that are worked on: by level, number, tag, or at random."""

from __future__ import annotations

import random
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Self

from pydantic import Field

from kforge.choices import did_you_mean
from kforge.errors import ProblemError
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kforge.problems.readers import Entry

MOST_MEANT = 3
"""Most names that are suggested for a pattern that matches no problem."""


class ProblemChoice(Record):
    """The problems that a user wants. Every field that is not empty narrows the choice."""

    levels: tuple[int, ...] = ()
    numbers: tuple[tuple[int, int], ...] = ()
    """First and last number of each range. A problem without a number counts by its place in the suite, from 1."""
    tags: tuple[str, ...] = ()
    """Families, or tags of the suite. A problem needs one of them."""
    sample: int = Field(default=0, ge=0)
    """Number of problems that are drawn at random; 0 keeps all."""
    seed: int = 0
    """Seed of the random draw. The same seed draws the same problems of the same suite."""

    @classmethod
    def parsed(cls, *, levels: str = "", numbers: str = "", tags: str = "", sample: int = 0, seed: int = 0) -> Self:
        """Return the choice that the command line describes: `1,2`, `1-20,35` and `norms,attention`.

        Raises ProblemError if a level or range is not a number, or if a range ends before it begins.
        """
        if not all(each.isdecimal() for each in _parts(levels)):
            raise ProblemError(f"--levels takes numbers separated by commas, such as 1,2; not {levels!r}")
        return cls(
            levels=tuple(map(int, _parts(levels))),
            numbers=tuple(map(_range, _parts(numbers))),
            tags=tuple(_parts(tags)),
            sample=sample,
            seed=seed,
        )

    def of(self, entries: Sequence[Entry], suite: str, only: str = "") -> list[Entry]:
        """Return the chosen entries in their order. `only` is a list of name patterns, separated by commas.

        Raises ProblemError if nothing is left, if a tag or level occurs nowhere, or if kforge refuses all problems that
        are left.
        """
        self._check(entries, suite)
        matching = [entry for entry in self.wanted(entries) if not only or matches(entry.name, only)]
        chosen = [entry for entry in matching if entry.refused is None]
        if not chosen:
            if matching:
                raise ProblemError(f"suite {suite}: {matching[0].refused}")
            meant = self._meant(entries, only) or f"the first of {len(entries)} is {entries[0].name}"
            raise ProblemError(f"suite {suite}: no problem matches {self._in_words(only)}; {meant}")
        if not 0 < self.sample < len(chosen):
            return chosen
        drawn = random.Random(self.seed).sample(range(len(chosen)), self.sample)  # noqa: S311 - a sample, no secret
        return [chosen[index] for index in sorted(drawn)]

    def wanted(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries of the chosen levels, numbers and tags, including those that kforge refuses."""
        return [entry for place, entry in enumerate(entries, 1) if self._wants(entry, place)]

    def _meant(self, entries: Sequence[Entry], only: str) -> str:
        """Return which of the wanted problems the user may have meant by a pattern; empty if no name is like it."""
        names = [entry.name for entry in self.wanted(entries)]
        patterns = (part.strip("*?/ ") for part in _parts(only))
        return next(filter(None, (did_you_mean(each, names, most=MOST_MEANT) for each in patterns)), "")

    def _wants(self, entry: Entry, place: int) -> bool:
        number = place if entry.number is None else entry.number
        return (
            (not self.levels or entry.level in self.levels)
            and (not self.numbers or any(first <= number <= last for first, last in self.numbers))
            and (not self.tags or bool({entry.family, *entry.tags} & set(self.tags)))
        )

    def _check(self, entries: Sequence[Entry], suite: str) -> None:
        levels = {entry.level for entry in entries if entry.level is not None}
        for level in self.levels:
            if level not in levels:
                there = f"there are: {', '.join(map(str, sorted(levels)))}" if levels else "it has no levels"
                raise ProblemError(f"suite {suite}: no level {level}; {there}")
        tags = {tag for entry in entries for tag in (entry.family, *entry.tags) if tag}
        for tag in self.tags:
            if tag not in tags:
                raise ProblemError(f"suite {suite}: no problem has the tag {tag!r}; there are: {_few(sorted(tags))}")

    def _in_words(self, only: str) -> str:
        ranges = ",".join(f"{first}-{last}" if first != last else str(first) for first, last in self.numbers)
        tags, levels = ",".join(self.tags), ",".join(map(str, self.levels))
        options = {"--levels": levels, "--range": ranges, "--tags": tags}
        named = [f"{name} {said}" for name, said in options.items() if said]
        return " ".join([repr(only), *named] if only else named)


def matches(name: str, pattern: str) -> bool:
    """Return whether a name matches one of the patterns, which are separated by commas: a shell pattern, or a part of
    the name."""
    return any(fnmatchcase(name, each) or each in name for each in pattern.split(",") if each)


def _parts(text: str) -> Iterator[str]:
    return (part.strip() for part in text.split(",") if part.strip())


def _range(text: str) -> tuple[int, int]:
    """Return first and last number of `7` or `1-20`. Raises ProblemError for anything else."""
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text)
    if match is None:
        raise ProblemError(f"--range takes numbers and ranges, such as 1-20,35; not {text!r}")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ProblemError(f"--range {text}: the range ends before it begins")
    return first, last


def _few(names: Sequence[str], most: int = 12) -> str:
    """Return the first `most` names in one line, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

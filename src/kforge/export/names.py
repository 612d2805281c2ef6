"""Keeps the names that an export adds to a source apart from the names of that source."""

from __future__ import annotations

import symtable
import unicodedata
import warnings
from typing import TYPE_CHECKING

from kforge.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "_kforge"


def free_prefix(*sources: str) -> str:
    """Return a prefix for names that occurs in none of these sources."""
    text = "\n".join(unicodedata.normalize("NFKC", source) for source in sources)  # as Python reads names
    found, count = PREFIX, 1
    while found in text:
        count += 1
        found = f"{PREFIX}{count}"
    return found


def refuse_used(source: str, names: tuple[str, ...], form: str, owner: str) -> None:
    """Raise InputError if functions of a source use global variables with these names. `owner`: whose source it is.

    A format demands the names for functions that are added after the source, and these would replace the variables. A
    source that is not valid Python passes; it is found when the files are compiled.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's own text
            used = set(_used_globals(symtable.symtable(source, "source", "exec")))
    except SyntaxError:
        return
    if taken := [name for name in names if name in used]:
        raise InputError(f"the format '{form}' needs the name {taken[0]!r}, which the {owner} uses; rename it there")


def _used_globals(table: symtable.SymbolTable) -> Iterator[str]:
    for inner in table.get_children():
        if inner.get_type() == "function":  # the body of a class has run before anything is added
            yield from (each.get_name() for each in inner.get_symbols() if each.is_global() and each.is_referenced())
        yield from _used_globals(inner)

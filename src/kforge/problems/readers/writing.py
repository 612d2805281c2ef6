"""Writes the sources of problems that a reader translates into kforge's own form."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kforge.errors import ProblemError
from kforge.problems.readers.protocol import Entry, Variant
from kforge.problems.source import REQUIRED_NAMES, missing_names, parse
from kforge.records import Problem
from kforge.records.faults import first_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LONGEST_WORKLOAD_NAME = 80
"""Most characters of a workload's name, which becomes the name of a folder and is printed on a line."""
LONGEST_REASON = 200
"""Most characters that are kept of an unexpected error."""


def problem(name: str, source: str, origin: str) -> Problem:
    """Return a problem with this source. Raises ProblemError if it is not Python, or lacks a required name.

    `name` may be a path in the suite; its last part names the problem. `origin` names the source in errors.
    """
    if missing := missing_names(parse(source, origin)):
        raise ProblemError(f"{origin}: does not define {' or '.join(missing)}, of {', '.join(REQUIRED_NAMES)}")
    return Problem(name=name.rpartition("/")[2], source=source)


def entry_or_failure(name: str, make: Callable[[], Entry]) -> Entry:
    """Return the entry that `make` returns. If it raises an exception, return an entry whose problem fails with that
    reason. The files of other suites have fields of any type and size, so any exception counts as a failure of this
    problem alone."""
    try:
        return make()
    except Exception as error:
        reason = reason_of(error, name)

        def fail() -> Problem:
            raise ProblemError(reason)

        return Entry(name=name, variants=(Variant(name="", make=fail),))


def reason_of(error: Exception, name: str) -> str:
    """Return the reason why a problem cannot be read, as one line that can be encoded as UTF-8."""
    said = " ".join(str(first_fault(error) if isinstance(error, ValidationError) else error).splitlines())
    if not isinstance(error, ProblemError):
        said = f"{name[:LONGEST_WORKLOAD_NAME]}: cannot be read: {type(error).__name__}: {said[:LONGEST_REASON]}"
    return said.encode("utf-8", "backslashreplace").decode()


def literal(value: Any) -> str:
    """Return a value of JSON or YAML as a Python expression. Raises ProblemError for any other type."""
    match value:
        case None | bool() | int() | str():
            return repr(value)
        case float():
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        case list() | tuple():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{literal(key)}: {literal(each)}' for key, each in value.items())}}}"
    raise ProblemError(f"a value of type {type(value).__name__} cannot be written into a problem")


def workload_name(index: int, values: Mapping[str, Any]) -> str:
    """Return the name of a workload: its number, counted from 1, and its values, such as `3-M=1024-causal=True`."""
    said = "-".join(f"{key}={value}" for key, value in values.items())
    return re.sub(r"[^\w=.+-]+", "_", f"{index + 1}-{said}" if said else str(index + 1))[:LONGEST_WORKLOAD_NAME]

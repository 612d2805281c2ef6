"""Says in plain words what is wrong with a value that a record refuses. pydantic's own messages reach a user only for
rare kinds of faults, and then slightly reworded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_SHOWN = 60
"""Most characters of a wrong value that a message quotes."""
_KINDS = {
    "missing": "is missing",
    "extra_forbidden": "is not known",
    "json_invalid": "is not valid JSON",
    "string_unicode": "is not valid Unicode",
    "int": "must be a whole number",
    "float": "must be a number",
    "finite_number": "must be a finite number",
    "bool": "must be true or false",
    "string": "must be text",
    "list": "must be a list",
    "tuple": "must be a list",
    "dict": "must be a table of names and values",
    "model": "must be a table of names and values",
    "dataclass": "must be a table of names and values",
    "none_required": "must be left out",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_too_short": "must have a length of at least {min_length}",
    "string_too_long": "must have a length of at most {max_length}",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have a length of at least {min_length}",
    "too_long": "must have a length of at most {max_length}",
}
"""What is wrong, by pydantic's type of the error or by that type's first word. Braces stand for pydantic's context."""


class WrongField(NamedTuple):
    """The first fault that a record found in its input."""

    field: str
    """The field, with the fields around it: `problems.norm.weight`. Empty if the fault is of the whole record."""
    reason: str
    """What is wrong, as the end of a sentence about the field: `must be at least 1, not 0`."""

    def __str__(self) -> str:
        if self.field:
            return f"{self.field}: {self.reason}"
        return f"it {self.reason}" if self.reason.startswith(("is ", "must ")) else self.reason


def first_fault(error: ValidationError) -> WrongField:
    """Return the first fault of several, in plain words."""
    first = error.errors(include_url=False)[0]
    return WrongField(".".join(str(part) for part in first["loc"]), plain_reason(first))


def plain_reason(detail: Mapping[str, Any]) -> str:
    """Return in one line what is wrong, what was given, and what is accepted. `detail`: an entry of
    `ValidationError.errors`."""
    context, kind = detail.get("ctx") or {}, detail["type"]
    inner = context.get("error")
    if isinstance(inner, ValidationError):  # a validator that calls another one
        return first_fault(inner).reason
    if kind in ("value_error", "assertion_error"):
        said = str(inner) if inner else detail["msg"].partition(", ")[2]
    else:
        said = _KINDS.get(kind) or _KINDS.get(kind.partition("_")[0]) or _own_words(detail["msg"])
        limits = {name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()}
        said = said.format(**limits) if kind in _KINDS else said
    said = " ".join(said.split())
    is_about_value = said.startswith(("must ", "it must ")) and ", not " not in said
    return f"{said}{_given(detail.get('input'))}" if is_about_value else said


def _own_words(message: str) -> str:
    """Return pydantic's message of a rare kind as the end of a sentence."""
    message = message.replace("Input should be", "must be").replace("Input should", "must")
    return message[:1].lower() + message[1:]


def _given(value: object) -> str:
    """Return `, not VALUE` for a value that can be quoted in a line; nothing for a whole table or list."""
    if not isinstance(value, str | int | float):
        return ""
    if isinstance(value, str):
        value = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}..."
        return f", not {value!a}"
    try:
        said = str(value)
    except ValueError:  # an integer of thousands of digits
        return ""
    return f", not {said if len(said) <= LONGEST_SHOWN else f'{said[:LONGEST_SHOWN]}...'}"

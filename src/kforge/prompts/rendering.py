"""Renders a prompt from a template and facts, with a fingerprint that does not depend on measurements.

Speedups, compiler logs and profiles differ between machines and runs, yet a recorded exchange must replay. So a
template marks measured values, `{{ speedup | measured }}` or `{% filter measured %}…{% endfilter %}`, and the
fingerprint holds `MEASURED` in their place: two prompts with one fingerprint ask the same question.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kforge.errors import InputError
from kforge.prompts.excerpts import fenced, trim

if TYPE_CHECKING:
    from jinja2 import Environment

MEASURED = "‹measured›"  # noqa: RUF001 - quotation marks that no prompt uses

STRUCTURED = "structured"
"""The template set that is used unless another one is asked for."""

# Private-use code points: no fact may contain them (see `_finalize`), so only `measured` can set a mark.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARKS = str.maketrans("", "", _OPEN + _CLOSE)
_SPAN = re.compile(f"{_OPEN}[^{_CLOSE}]*{_CLOSE}")


class Rendered(NamedTuple):
    """A prompt as the model sees it, and the same prompt without its measurements."""

    text: str
    fingerprint: str


class _Marked(str):
    """A measured value between its two marks. `_finalize` removes marks from every other text."""

    __slots__ = ()


def _measured(value: object) -> _Marked:
    return _Marked(_OPEN + str(value).translate(_MARKS) + _CLOSE)


def _finalize(value: object) -> str:
    if isinstance(value, _Marked):
        return value
    if value is None:
        raise TypeError("a variable that the prompt template prints is None")
    return str(value).translate(_MARKS)


def template_sets() -> list[str]:
    """Return the names of the template sets, as users write them."""
    return sorted(path.name.replace("_", "-") for path in Path(__file__).parent.iterdir() if any(path.glob("*.j2")))


@functools.cache
def _environment(template_set: str) -> Environment:
    # Jinja2 costs a tenth of a second to import, and most commands never render a prompt.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).parent / template_set.replace("-", "_")
    if template_set not in template_sets():
        raise InputError(f"there is no template set {template_set!r}; there is: {', '.join(template_sets())}")
    # Autoescaping is for HTML; a prompt must show `<` as `<`.
    environment = Environment(  # noqa: S701
        # a template that the set lacks is the structured set's, such as the question after an unreadable answer
        loader=FileSystemLoader([folder, folder.parent / STRUCTURED]),
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(measured=_measured, trimmed=trim, fenced=fenced)
    return environment


def render(template: str, /, *, template_set: str = STRUCTURED, **facts: object) -> Rendered:
    """Render `<template_set>/<template>.j2`.

    Raises InputError for an unknown template set; a missing template or fact raises Jinja2's error.
    """
    marked = _environment(template_set).get_template(f"{template}.j2").render(facts)
    return Rendered(text=marked.translate(_MARKS), fingerprint=_SPAN.sub(MEASURED, marked))

"""Options for the amount of progress that a long command prints: `-q` none, `-v` every step on its own line."""

from __future__ import annotations

import functools
import inspect
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable


class Verbosity(Enum):
    """The amount of progress that is printed. Results and errors are printed in any case."""

    QUIET = "quiet"
    USUAL = "usual"
    VERBOSE = "verbose"


_level = Verbosity.USUAL

QUIET = Annotated[bool, typer.Option("-q", "--quiet", help="No progress: the result and errors only.")]
VERBOSE = Annotated[bool, typer.Option("-v", "--verbose", help="Every step as a line, with the seconds.")]


def level() -> Verbosity:
    """Return how much progress the present command prints."""
    return _level


def with_verbosity(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with the options `-q` and `-v`. They set the verbosity while the command runs.

    The returned command raises BadParameter if both are given.
    """
    signature = inspect.signature(command)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("quiet", QUIET), ("verbose", VERBOSE))
    ]

    @functools.wraps(command)
    def telling(*args: Any, quiet: bool = False, verbose: bool = False, **given: Any) -> int:
        global _level
        if quiet and verbose:
            raise typer.BadParameter("-q and -v exclude each other")
        before = _level
        _level = Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.USUAL
        try:
            return command(*args, **given)
        finally:
            _level = before

    telling.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *options])  # type: ignore[attr-defined]
    telling.__annotations__ = {**command.__annotations__, "quiet": QUIET, "verbose": VERBOSE}
    return telling

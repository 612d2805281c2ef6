"""Reports the progress of `kforge.forge`: lines on standard error, log records, or calls of the user's function."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kforge.errors import InputError
from kforge.phrases import attempt_detail
from kforge.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.records import Attempt

LOGGER = "kforge.progress"
PATIENCE = 5.0
"""Least number of seconds between two lines about the same stage."""


@contextmanager
def telling(progress: Callable[[str], None] | bool | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that reports one line of progress.

    `None` and `True`: each line goes to the logger `kforge.progress`. If the user has given that logger no handler, it
    goes on to standard error, with the seconds since the start. `False`: lines are dropped. A function is yielded as it
    is. Raises InputError for anything else.
    """
    if progress is False:
        yield lambda _: None
    elif callable(progress):
        yield progress
    elif progress is None or progress is True:
        with _logging() as tell:
            yield tell
    else:
        raise InputError(
            f"progress must be a function that takes a line of text, True, False or None, not {progress!r}"
        )


@contextmanager
def _logging() -> Iterator[Callable[[str], None]]:
    logger, start = logging.getLogger(LOGGER), time.monotonic()

    stage, last = "", start

    def tell(text: str) -> None:
        nonlocal stage, last
        now, new = time.monotonic(), text.partition(":")[0]
        if new == stage and now - last < PATIENCE:  # for example each of twenty cases
            return
        stage, last = new, now
        logger.info("[%6.1f s] %s", now - start, visible(text))

    if logger.handlers:  # the user has decided where lines go, and from which level on
        yield tell
        return
    handler, level, propagates = logging.StreamHandler(), logger.level, logger.propagate
    handler.setFormatter(logging.Formatter("kforge %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # otherwise a user who shows all log lines sees each one twice
    try:
        yield tell
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


def line(attempt: Attempt) -> str:
    """Return one line about the result of an attempt."""
    state = attempt.verdict.state.replace("_", " ")
    if attempt.unchanged is not None:
        return f"attempt {attempt.index}: the module unchanged, {attempt.unchanged}"
    why_not = f"not timed: {attempt.untimed}" if attempt.untimed is not None else getattr(attempt.verdict, "reason", "")
    said = attempt_detail(attempt) if attempt.comparisons else why_not
    return f"attempt {attempt.index}: {state}, {said}"

"""Runs torch.export without its output to the terminal. (torch)"""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_REASON = 200
"""Most characters of an exception's message that `one_line` returns."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, log lines and what torch.export prints to standard error, inside the `with` block.

    Exceptions are not affected; `one_line` describes them for users.
    """
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def one_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first[:LONGEST_REASON]}" if first else type(error).__name__

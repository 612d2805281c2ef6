"""Runs torch.export without its output to the terminal. (torch)"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections import Counter
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_REASON = 200
"""Most characters of an exception's message that `one_line` returns."""


class _Silence:
    """Silences the threads inside `quiet`, of which there may be several at once.

    Standard error, warnings and logging belong to the whole process. The first thread replaces them and the last one
    puts them back: if each thread restored what it had found, they could stay silenced for good.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replaced = ExitStack()
        self._threads = Counter[int]()

    def begin(self) -> None:
        with self._lock:
            if not self._threads:
                self._replaced = _silenced(self._threads)
            self._threads[threading.get_ident()] += 1

    def end(self) -> None:
        with self._lock:
            thread = threading.get_ident()
            self._threads[thread] -= 1
            if not self._threads[thread]:
                del self._threads[thread]
            if not self._threads:
                self._replaced.close()


class _OtherThreads:
    """Standard error without what the silent threads print. The other threads go on printing: a suite's progress is
    printed by one thread while another one traces a problem."""

    def __init__(self, stream: TextIO, silent: Counter[int]) -> None:
        self._stream = stream
        self._silent = silent

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in self._silent else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _silenced(threads: Counter[int]) -> ExitStack:
    """Replace standard error, warnings and logging of the process until the returned stack is closed."""
    with ExitStack() as replaced:
        replaced.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        replaced.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if sys.stderr is not None:  # a process without a console has no standard error
            replaced.enter_context(redirect_stderr(cast("TextIO", _OtherThreads(sys.stderr, threads))))
        return replaced.pop_all()


_SILENCE = _Silence()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what this thread prints to standard error inside the `with` block, as torch.export does. Warnings and log
    lines of all threads are silenced meanwhile.

    Exceptions are not affected; `one_line` describes them for users.
    """
    _SILENCE.begin()
    try:
        yield
    finally:
        _SILENCE.end()


def one_line(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first[:LONGEST_REASON]}" if first else type(error).__name__

"""One event loop for all calls over a network, so that threads can share a provider's client."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
_STARTING = threading.Lock()
"""Held while the loop is started, so that it is started only once."""


def run(question: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine, or raise what it raises. Several threads may call this at once.

    It also works where an event loop runs already, as in a notebook. An interrupt cancels the coroutine.
    """
    answer = asyncio.run_coroutine_threadsafe(question, _loop())
    try:
        return answer.result()
    except BaseException:
        answer.cancel()
        raise


def _loop() -> asyncio.AbstractEventLoop:
    with _STARTING:
        return _started()


@functools.cache
def _started() -> asyncio.AbstractEventLoop:
    """Return the loop. Its thread ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="kforge model calls", daemon=True).start()
    return loop

"""Makes model calls: several at once in threads, or one after another."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Questions:
    """The model calls of one round."""

    def __init__(self, at_once: int) -> None:
        """`at_once`: most calls in flight. With one, a call is made when its result is needed, in the caller's
        thread."""
        self._is_threaded = at_once > 1
        self._free = threading.Semaphore(at_once)
        self._started = list[Future[Any]]()

    def ask(self, call: Callable[[], T], after: Callable[[], object] | None = None) -> Callable[[], T]:
        """Return a function that waits for the result of the call, and raises what the call raises.

        `after`: another question whose result the call needs. While it waits for that, the call is not in flight.
        """
        if not self._is_threaded:
            return functools.cache(call)
        future = Future[T]()
        # a daemon thread, so that an interrupted command does not wait for a provider
        threading.Thread(target=self._carry_out, args=(future, call, after), daemon=True).start()
        self._started.append(future)
        return future.result

    def finish(self) -> None:
        """Wait for all calls in flight."""
        wait(self._started)

    def _carry_out(self, future: Future[T], call: Callable[[], T], after: Callable[[], object] | None) -> None:
        try:
            if after is not None:
                after()
            with self._free:
                result = call()
        except BaseException as error:  # raised where the result is needed
            future.set_exception(error)
        else:
            future.set_result(result)

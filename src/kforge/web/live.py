"""Server-sent events: one event whenever the files that a page shows have changed. The page then loads itself again."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.concurrency import run_in_threadpool

from kforge.errors import ServiceBusy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SECONDS = 1.0
"""Seconds between two checks of the disk: stages of a run take longer, and a check takes milliseconds."""
BEAT_SECONDS = 15.0
"""Seconds without an event after which a comment is sent: sending it fails if the client is gone, and it keeps proxies
from closing the stream."""
RETRY_MILLISECONDS = 2000
"""Milliseconds that a page waits until it connects again, after its stream has ended."""
MOST_STREAMS = 24
"""Most pages that may be open at once."""


class Changes:
    """Event streams that tell clients when the files of a page have changed. Clients of one page share disk checks."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str]] = {}
        self._looking = threading.Lock()
        self.open_streams = 0
        """Number of clients that wait for changes."""
        self._is_over = False

    def end(self) -> None:
        """End all streams, because the server ends."""
        self._is_over = True

    def of(self, name: str, mark: Callable[[], str]) -> EventSourceResponse:
        """Return a stream with an event at once and at every change. Raises ServiceBusy if MOST_STREAMS pages are open.

        `mark` returns a text that changes with what the page `name` shows.
        """
        if self.open_streams >= MOST_STREAMS:
            raise ServiceBusy(f"{MOST_STREAMS} pages are open already; close one")
        return EventSourceResponse(self._events(name, mark))

    async def _events(self, name: str, mark: Callable[[], str]) -> AsyncIterator[bytes]:
        self.open_streams += 1
        last, said = "", 0.0
        try:
            while not self._is_over:
                now = await run_in_threadpool(self._look, name, mark)
                if now != last:
                    last, said = now, time.monotonic()
                    yield format_sse_event(event="change", data_str="now", retry=RETRY_MILLISECONDS)
                elif time.monotonic() - said > BEAT_SECONDS:
                    said = time.monotonic()
                    yield format_sse_event(comment="still here")
                await asyncio.sleep(SECONDS)
        finally:
            self.open_streams -= 1

    def _look(self, name: str, mark: Callable[[], str]) -> str:
        with self._looking:
            when, known = self._known.get(name, (0.0, ""))
            if time.monotonic() - when > SECONDS / 2:
                known = mark()
                self._known[name] = (time.monotonic(), known)
            return known

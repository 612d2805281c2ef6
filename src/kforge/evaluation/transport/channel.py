"""Sends and receives messages over a socket, with deadlines. Tells a silent peer from one that has died."""

from __future__ import annotations

import os
import select
import socket
import time
from typing import TYPE_CHECKING

from kforge.errors import ChannelError
from kforge.evaluation.transport.wire import HEADER, MAGIC, WireMessage, decode

if TYPE_CHECKING:
    from kforge.evaluation.transport.codec import Rebuild


class SideTimedOut(Exception):
    """The peer sent nothing before the deadline, or did not read."""


class SideDied(Exception):
    """The peer has closed the channel or has died."""


class Channel:
    """One end of a channel.

    `max_frame` is the most bytes of a message that is accepted. `death` is a pidfd of the peer's process: when it ends,
    the peer counts as dead even if a child of it keeps the socket open. `rebuild` makes the named tuples of messages
    from a trusted peer; without it they are plain tuples.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        max_frame: int,
        death: int | None = None,
        rebuild: Rebuild | None = None,
    ) -> None:
        self._socket = connection
        self._max_frame = max_frame
        self._death = death
        self._rebuild = rebuild
        self.arrived = 0
        """When `receive_with_descriptor` got the header of the last message, by `time.perf_counter_ns`."""

    def send(self, message: WireMessage, *, descriptors: tuple[int, ...] = (), deadline: float = 60.0) -> None:
        """Send a message. Raises SideDied; SideTimedOut if the peer does not read; TypeError for a value that cannot be
        encoded."""
        self.send_frame(message.encode(), descriptors=descriptors, deadline=deadline)

    def send_frame(self, frame: bytes, *, descriptors: tuple[int, ...] = (), deadline: float = 60.0) -> None:
        """Send a message that is already encoded. Raises SideDied, or SideTimedOut if the peer does not read."""
        self._socket.settimeout(deadline)
        try:
            sent = socket.send_fds(self._socket, [frame], list(descriptors)) if descriptors else 0
            self._socket.sendall(memoryview(frame)[sent:])
        except TimeoutError:
            raise SideTimedOut from None
        except OSError:
            raise SideDied from None

    def receive(self, deadline: float, *, awake: bool = False) -> WireMessage:
        """Return the next message. Raises SideTimedOut, SideDied, or ChannelError for a malformed message.

        With `awake`, the wait does not sleep: a core that has slept for milliseconds reacts a tenth of a millisecond
        later.
        """
        end = time.monotonic() + deadline
        while awake and time.monotonic() < end and not self._readable(0.0, or_dead=True):
            pass
        magic, kind, length = HEADER.unpack(self._read(HEADER.size, end))
        if magic != MAGIC:
            raise ChannelError("a frame does not start with the magic bytes")
        if length > self._max_frame:
            raise ChannelError(f"a frame of {length} bytes is over the cap of {self._max_frame}")
        return decode(kind, self._read(length, end), self._rebuild)

    def has_unread(self) -> bool:
        """Return whether data has arrived that was not read yet. EOF does not count."""
        try:
            return self._readable(0.0) and bool(self._received(1, socket.MSG_PEEK))
        except BlockingIOError:  # an out-of-band byte, which a normal read does not return
            return True
        except OSError:
            return False

    def receive_with_descriptor(self, deadline: float) -> tuple[WireMessage, list[int]]:
        """Return the next message and its file descriptors, at most one. Raises the same errors as `receive`."""
        self._socket.settimeout(deadline)
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, HEADER.size, 1)
            self.arrived = time.perf_counter_ns()
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
        except TimeoutError:
            raise SideTimedOut from None
        except OSError:
            raise SideDied from None
        if not head:
            raise SideDied
        end = time.monotonic() + deadline
        head += self._read(HEADER.size - len(head), end)
        magic, kind, length = HEADER.unpack(head)
        if magic != MAGIC or length > self._max_frame:
            raise ChannelError("malformed frame")
        return decode(kind, self._read(length, end), self._rebuild), list(descriptors)

    def _read(self, count: int, end: float) -> bytes:
        """Return exactly `count` bytes. Raises SideTimedOut at the time `end`, SideDied or ChannelError."""
        parts = bytearray()
        while len(parts) < count:
            self._await_data(end)
            try:
                data = self._received(count - len(parts))
            except BlockingIOError:
                raise ChannelError("a byte was sent out of band") from None
            except OSError:
                raise SideDied from None
            if not data:
                raise SideDied
            parts += data
        return bytes(parts)

    def _received(self, most: int, flags: int = 0) -> bytes:
        """Return the available bytes. Raises BlockingIOError if there is only out-of-band data, although the socket
        seems readable."""
        self._socket.setblocking(False)  # with a timeout, Python would wait for data that never comes
        return self._socket.recv(most, flags)

    def _await_data(self, end: float) -> None:
        """Wait until there is data. Raises SideTimedOut at the time `end`, or SideDied."""
        # poll, not settimeout: one deadline for the whole frame, so that slow single bytes cannot extend it
        remaining = end - time.monotonic()
        if remaining <= 0 or not self._readable(remaining, or_dead=True):
            raise SideTimedOut
        if not self._readable(0.0):  # the peer died, and has left no unread data
            raise SideDied

    def _readable(self, seconds: float, *, or_dead: bool = False) -> bool:
        """Return whether data (or EOF) arrives within these seconds; with `or_dead`, also whether the peer's process
        ends."""
        waiting = select.poll()  # select() fails from descriptor 1024 on, which a host program may have passed
        waiting.register(self._socket, select.POLLIN)
        if or_dead and self._death is not None:
            waiting.register(self._death, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def close(self) -> None:
        self._socket.close()
        if self._death is not None:
            os.close(self._death)
            self._death = None

"""A frame channel over a socket, with deadlines: a silent other side is *timed out*, a closed one *died*."""

from __future__ import annotations

import select
import socket
import time

from kforge.errors import ChannelError
from kforge.evaluation.wire import HEADER, MAGIC, Message, decode


class SideTimedOut(Exception):
    """Nothing arrived before the deadline."""


class SideDied(Exception):
    """The other side closed the channel."""


class Channel:
    def __init__(self, connection: socket.socket, *, max_frame: int) -> None:
        self._socket = connection
        self._max_frame = max_frame

    def send(self, message: Message, *, descriptors: tuple[int, ...] = (), deadline: float = 60.0) -> None:
        """Raises SideDied, SideTimedOut when the other side does not read, or TypeError for a foreign value."""
        self.send_frame(message.encode(), descriptors=descriptors, deadline=deadline)

    def send_frame(self, frame: bytes, *, descriptors: tuple[int, ...] = (), deadline: float = 60.0) -> None:
        self._socket.settimeout(deadline)
        try:
            sent = socket.send_fds(self._socket, [frame], list(descriptors)) if descriptors else 0
            self._socket.sendall(memoryview(frame)[sent:])
        except TimeoutError:
            raise SideTimedOut from None
        except OSError:
            raise SideDied from None

    def receive(self, deadline: float) -> Message:
        """The next message. Raises SideTimedOut, SideDied or ChannelError."""
        end = time.monotonic() + deadline
        magic, kind, length = HEADER.unpack(self._read(HEADER.size, end))
        if magic != MAGIC:
            raise ChannelError("a frame does not start with the magic bytes")
        if length > self._max_frame:
            raise ChannelError(f"a frame of {length} bytes is over the cap of {self._max_frame}")
        return decode(kind, self._read(length, end))

    def has_unread(self) -> bool:
        """Whether something arrived that nobody has asked for yet."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def receive_with_descriptor(self, deadline: float) -> tuple[Message, list[int]]:
        """As `receive`, for a side that may be handed a file descriptor with the header."""
        self._socket.settimeout(deadline)
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, HEADER.size, 1)
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
        return decode(kind, self._read(length, end)), list(descriptors)

    def _read(self, count: int, end: float) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            remaining = end - time.monotonic()
            # poll, not settimeout: one deadline for the whole frame, so that a slow drip cannot extend it
            if remaining <= 0 or not select.select([self._socket], [], [], remaining)[0]:
                raise SideTimedOut
            try:
                data = self._socket.recv(count - len(parts))
            except OSError:
                raise SideDied from None
            if not data:
                raise SideDied
            parts += data
        return bytes(parts)

    def close(self) -> None:
        self._socket.close()

"""Channels: silent is timed out, closed is died, malformed is neither."""

import fcntl
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from kforge.errors import ChannelError
from kforge.evaluation.transport import wire
from kforge.evaluation.transport.channel import Channel, SideDied, SideTimedOut


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours, max_frame=1000), theirs


def test_a_frame_arrives(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    theirs.sendall(wire.Done(7, [], []).encode())
    assert channel.receive(1.0) == wire.Done(7, [], [])


def test_silence_is_timed_out(pair: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(SideTimedOut):
        pair[0].receive(0.05)


def test_closing_is_dying(pair: tuple[Channel, socket.socket]) -> None:
    pair[1].close()
    with pytest.raises(SideDied):
        pair[0].receive(1.0)


def test_half_a_frame_is_dying(pair: tuple[Channel, socket.socket]) -> None:
    pair[1].sendall(wire.Done(7, [], []).encode()[:-2])
    pair[1].close()
    with pytest.raises(SideDied):
        pair[0].receive(1.0)


def test_a_slow_drip_cannot_extend_the_deadline(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    frame = wire.Failed("raised", "x" * 500, "").encode()
    stop = threading.Event()

    def drip() -> None:
        for byte in frame:
            if stop.wait(0.02):
                return
            theirs.send(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(SideTimedOut):
            channel.receive(0.2)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("head", [b"evil" + bytes(5), wire.HEADER.pack(wire.MAGIC, 66, 1001)])
def test_foreign_magic_and_oversized_frames_are_refused(pair: tuple[Channel, socket.socket], head: bytes) -> None:
    pair[1].sendall(head)
    with pytest.raises(ChannelError):
        pair[0].receive(1.0)


def test_a_reader_that_does_not_read_is_timed_out(pair: tuple[Channel, socket.socket]) -> None:
    with pytest.raises(SideTimedOut):
        pair[0].send(wire.Failed("raised", "x" * 10_000_000, ""), deadline=0.05)


def test_a_descriptor_travels_with_its_frame(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    read, write = os.pipe()
    other = Channel(theirs, max_frame=1000)
    other.send(wire.Attach("inputs", 5, ""), descriptors=(write,))
    message, descriptors = channel.receive_with_descriptor(1.0)
    assert message == wire.Attach("inputs", 5, "")
    os.write(descriptors[0], b"through")
    assert os.read(read, 7) == b"through"
    for descriptor in (read, write, *descriptors):
        os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux has pidfds")
def test_a_side_whose_child_keeps_the_socket_open_is_dead_all_the_same() -> None:
    ours, theirs = socket.socketpair()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        channel = Channel(ours, max_frame=100, death=os.pidfd_open(process.pid))
        theirs.sendall(wire.Ready().encode())
        process.communicate(b"\n")
    assert channel.receive(5) == wire.Ready()  # said before it died
    with pytest.raises(SideDied):
        channel.receive(5)
    channel.close()
    theirs.close()


def test_what_arrived_unasked_is_seen(pair: tuple[Channel, socket.socket]) -> None:
    channel, theirs = pair
    assert not channel.has_unread()
    theirs.sendall(wire.Ready().encode())
    assert channel.has_unread()
    channel.receive(1.0)
    assert not channel.has_unread()
    theirs.close()
    assert not channel.has_unread()


def test_descriptors_beyond_the_reach_of_select_will_do() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2000:
        pytest.skip("this process may not open that many files")
    ours, theirs = socket.socketpair()
    high = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, 1500)
    with ours, theirs, socket.socket(fileno=high) as far:
        theirs.sendall(wire.Ready().encode())
        assert Channel(far, max_frame=1000).receive(1.0) == wire.Ready()

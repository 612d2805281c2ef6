"""Makes cells: a cell is a set of new namespaces for one worker, with its own init process.

An unprivileged process can make a PID namespace for its children only once, and forking a process with torch takes
milliseconds. So a small process, the *warden*, is forked before torch is imported. Later it joins the user namespace of
the fork server. For every cell the warden forks a child, which unshares the namespaces and forks the cell's init. Then
the fork server forks the worker directly into the cell, and stays its parent.

The init is the first process of the cell. It builds the private root and reaps orphans. It keeps its capabilities, so
that a worker cannot read its memory. It stops all processes of the cell when the referee asks (`Freezer`). It lives
until it is killed or the fork server is gone. When it ends, the kernel kills every process in the cell.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kforge.evaluation.constants import CELL_SECONDS, START_DEADLINE
from kforge.evaluation.sandbox import leftovers, privileges, root, snapshots, syscalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.sandbox.border import Border, WorkerFolders

INSIDE = 1000
"""User id of a worker inside its user namespace."""
NOBODY = 65534
"""User id of a worker outside its namespace, if kforge runs as root. This user owns nothing, and RLIMIT_NPROC limits
its processes, unlike those of root."""

_OF_A_CELL = ("mount", "net", "ipc", "uts", "cgroup")
"""Kinds of namespaces that each cell has, besides its PID namespace."""
_LEAST_SECONDS = 0.01
"""Least socket timeout in seconds: 0 would make the socket non-blocking."""


@dataclass(frozen=True)
class Cell:
    """A cell of one worker. It exists as long as its init process."""

    init: int
    """A pidfd of the init process. A pid could be reused for another process; a pidfd cannot."""
    freezer: int
    """File descriptor of a socket to the init. The referee uses it to stop the cell's processes (`Freezer`)."""

    def await_worker(self) -> None:
        """Let the next child of this process start in the cell's PID namespace."""
        syscalls.join(self.init, "pid")

    def enter(self) -> None:
        """Move this process into the other namespaces of the cell, and become its unprivileged user.

        Call it in the child that was forked after `await_worker`. It closes the init's pidfd.
        """
        syscalls.join(self.init, *_OF_A_CELL)
        os.setresgid(INSIDE, INSIDE, INSIDE)
        os.setresuid(INSIDE, INSIDE, INSIDE)
        os.close(self.init)

    def kill(self) -> None:
        """Kill the init, and thereby all processes of the cell."""
        signal.pidfd_send_signal(self.init, signal.SIGKILL)

    def destroy(self) -> None:
        """Kill all processes of the cell and wait until they are gone. Raises TimeoutError if they do not end within
        CELL_SECONDS."""
        with contextlib.suppress(ProcessLookupError):
            self.kill()
        ended = select.select([self.init], [], [], CELL_SECONDS)[0]
        os.close(self.init)
        os.close(self.freezer)
        if not ended:
            raise TimeoutError("a sandbox's processes did not end")


class Freezer:
    """Stops all processes of a cell at once, by a request to the cell's init. The referee uses it.

    In the kernel, a signal to all processes of a PID namespace and a fork exclude each other: a child exists before the
    signal and gets it, or its parent is stopped before the fork. So processes that replace themselves faster than they
    can be listed are stopped, too.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._asked = itertools.cycle(range(256))

    def freeze(self, seconds: float) -> None:
        """Send SIGSTOP to every process of the cell, which takes microseconds. Does nothing if the cell is gone.

        Raises TimeoutError if the init does not answer within these seconds.
        """
        request = bytes([next(self._asked)])
        self._socket.settimeout(max(seconds, _LEAST_SECONDS))
        with contextlib.suppress(ConnectionError):
            self._socket.send(request)
            while self._socket.recv(1) not in (request, b""):
                pass  # the answer to an earlier request that timed out

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True)
class Warden:
    """The socket and the pipe to a warden process."""

    orders: socket.socket
    """Socket for requests to make a cell."""
    lifeline: tuple[int, int]
    """Pipe of which the fork server holds the writing end. The warden and the inits see EOF when the fork server is
    gone."""

    @classmethod
    def fork(cls) -> Warden:
        """Fork a warden from this process."""
        lifeline = os.pipe()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            privileges.close_all_but((0, 1, 2, theirs.fileno(), lifeline[0]))
            _warden(theirs, lifeline[0])
        theirs.close()
        return cls(ours, lifeline)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All file descriptors of the warden, for a fork of this process that shall use it."""
        return self.orders.fileno(), *self.lifeline

    def close_descriptors(self) -> None:
        """Close the warden's descriptors in this process, after another process has got them."""
        self.orders.close()
        for end in self.lifeline:
            os.close(end)


class Cells:
    """Makes cells for a fork server, with the help of the warden.

    The constructor moves this process into a new user namespace, which cannot be undone. Raises OSError if
    the kernel refuses.
    """

    def __init__(self, border: Border, warden: Warden | None, *, as_nobody: bool) -> None:
        self._warden = warden or Warden.fork()
        _enter_user_namespace(as_nobody=as_nobody)
        self._orders = self._warden.orders
        self._orders.settimeout(START_DEADLINE)
        me = os.pidfd_open(os.getpid())
        try:
            socket.send_fds(self._orders, [json.dumps([border.readable, border.devices]).encode()], [me])
        finally:
            os.close(me)

    def open(self, place: WorkerFolders) -> Cell:
        """Make a cell in which a worker may write to these two folders. Raises OSError if the kernel refuses."""
        leftovers.hand_over(place.builds, INSIDE, INSIDE)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            order = json.dumps([str(place.work), str(place.builds)]).encode()
            socket.send_fds(self._orders, [order], [theirs.fileno()])
            answer = json.loads(self._orders.recv(65536) or b'{"error": "the process that makes sandboxes has died"}')
            if "error" in answer:
                raise OSError(f"no sandbox could be made: {answer['error']}")
            return Cell(os.pidfd_open(answer["pid"]), ours.detach())


def _enter_user_namespace(*, as_nobody: bool) -> None:
    """Move this process into a new user namespace: all capabilities inside, none outside."""
    if not as_nobody:
        user, group = os.geteuid(), os.getegid()
        syscalls.unshare("user")
        Path("/proc/self/setgroups").write_text("deny")
        _map("self", f"{INSIDE} {user} 1", f"{INSIDE} {group} 1")
        return
    os.setgroups([])
    # only a process outside the new user namespace may map a second user into it
    mine, theirs = socket.socketpair()
    pid, child = os.getpid(), os.fork()
    if child == 0:
        try:
            mine.close()  # otherwise the end of the peer would never show as EOF
            if theirs.recv(1):
                _map(str(pid), f"0 0 1\n{INSIDE} {NOBODY} 1", f"0 0 1\n{INSIDE} {NOBODY} 1")
                os._exit(0)
        finally:
            os._exit(1)
    syscalls.unshare("user")
    with mine, theirs:
        mine.send(b"!")
        if os.waitpid(child, 0)[1] != 0:
            raise PermissionError("the kernel did not let us map another user")


def _map(process: str, users: str, groups: str) -> None:
    """Write the user and group maps of a user namespace."""
    for name, lines in (("uid_map", users), ("gid_map", groups)):
        (Path("/proc") / process / name).write_text(lines)


# --- the warden and the inits: small processes without torch ---------------------------------------------------


def _warden(orders: socket.socket, lifeline: int) -> NoReturn:
    """Run the warden: join the fork server's user namespace, then fork a child for every cell that is requested."""
    from kforge.evaluation.sandbox.border import Border, WorkerFolders

    try:
        privileges.die_with_parent()
        told, (fork_server, *_), _, _ = socket.recv_fds(orders, 1 << 20, 1)
        readable, devices = json.loads(told)
        border = Border(tuple(readable), tuple(devices))
        if os.geteuid() == 0:
            os.setgroups([])
        syscalls.join(fork_server, "user")
        os.close(fork_server)
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
        machine = snapshots.take()
        while (received := socket.recv_fds(orders, 65536, 1))[0]:
            order, (freezer,), _, _ = received
            work, builds = json.loads(order)
            if os.fork() == 0:
                enter_root = partial(root.enter, border, WorkerFolders(Path(work), Path(builds)), machine, owner=INSIDE)
                _open_cell(orders, lifeline, freezer, enter_root)
            os.close(freezer)
    finally:
        os._exit(0)


def _open_cell(orders: socket.socket, lifeline: int, freezer: int, enter_root: Callable[[], None]) -> NoReturn:
    """Run in a child of the warden: make the namespaces of a cell, and fork its init."""
    try:
        syscalls.unshare("pid", *_OF_A_CELL)
        if os.fork() == 0:
            _init(orders, lifeline, freezer, enter_root)
    except OSError as error:
        orders.send(json.dumps({"error": str(error)}).encode())
    finally:
        os._exit(0)


def _init(orders: socket.socket, lifeline: int, freezer: int, enter_root: Callable[[], None]) -> NoReturn:
    """Run the init of a cell: enter the private root, report its pid, and serve requests to stop the cell."""
    try:
        pid = int(str(Path("/proc/self").readlink()))  # as the host counts, while its /proc is visible
        enter_root()
        socket.sethostname("kforge")
        orders.send(json.dumps({"pid": pid}).encode())
        orders.close()
        for stream in (0, 1, 2):
            os.close(stream)
        _freeze_on_request(freezer, lifeline)
    except OSError as error:
        orders.send(json.dumps({"error": str(error)}).encode())
    finally:
        os._exit(0)


def _freeze_on_request(freezer: int, lifeline: int) -> None:
    """For each byte that arrives, stop all processes of the cell and send the byte back. Ends when the fork server is
    gone."""
    waiting = select.poll()
    waiting.register(lifeline, select.POLLIN)  # it is never written to: EOF means that the fork server is gone
    waiting.register(freezer, select.POLLIN)
    while lifeline not in (ready := [descriptor for descriptor, _ in waiting.poll()]):
        if freezer not in ready:
            continue
        request = b""
        with contextlib.suppress(ConnectionError):
            request = os.read(freezer, 1)
        if not request:
            waiting.unregister(freezer)
            continue
        with contextlib.suppress(ProcessLookupError):  # the cell has no other process
            os.kill(-1, signal.SIGSTOP)  # every process of this PID namespace but ourselves
        with contextlib.suppress(ConnectionError):
            os.write(freezer, request)

"""Runs one command in a cell: private root, processes, network and user. Inside, sandboxes of workers still work.

Covered: the user's files, keys, runs and caches do not exist in the cell; the only network is a loopback of its own; no
process outside can be seen or signalled; all capabilities are gone; all processes end with the cell. Not covered: the
accelerator's driver, memory and processor time, side channels. Unlike the sandbox of a worker, a cell allows user
namespaces and the calls that a referee needs to hold a worker still.

    launcher (single-threaded, no foreign code)
    └── child in a new user namespace
        └── init of the new PID namespace: builds the root, reaps orphans
            └── the command, without privileges
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kforge.evaluation.sandbox import leftovers, privileges, root, seccomp, syscalls
from kforge.evaluation.sandbox.border import Border, WorkerFolders
from kforge.evaluation.sandbox.cells import INSIDE, NOBODY
from kforge.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACES = ("pid", "mount", "net", "ipc", "uts", "cgroup")
"""The kinds of namespaces that a cell has besides its user namespace."""
NEEDED = frozenset({
    # for the sandboxes of workers inside
    "mount", "umount2", "pivot_root", "mount_setattr", "unshare", "setns", "sethostname",
    # for a referee: holding a worker still, reading its memory, counting its cycles
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp", "perf_event_open",
    "timerfd_create", "timer_create", "personality",
})  # fmt: skip
"""System calls that a worker is refused and a referee needs."""
PROCESSES = 4096
"""Most processes and threads of a cell: a referee, its fork server, and two workers with their limits."""
FAILED = 70
"""Exit status of a launcher that could not make the cell; its last line on standard error says why."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


class CellOrders(Record):
    """The files and devices that a cell shows, and the command that it runs."""

    readable: tuple[str, ...]
    devices: tuple[str, ...]
    work: str
    """An empty folder of this cell's own; inside it is private memory."""
    builds: str
    """A folder that the cell may write on disk."""
    command: tuple[str, ...]
    environment: dict[str, str]
    lifeline: int
    """A pipe that the server holds open. At EOF, the cell ends."""


def main(orders: CellOrders) -> int:
    """Make the cell, run the command in it, and return its exit status. Raises OSError if the kernel refuses."""
    born, mapped = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        _exit_with(lambda: _in_namespaces(orders, born[1], mapped[0]))
    os.close(born[1])
    if os.read(born[0], 1):
        _map(child)
        os.write(mapped[1], b"!")
    return _await(child, orders.lifeline)


def _await(child: int, lifeline: int) -> int:
    """Wait for the child, and return its exit status. If the server ends first, the child is killed."""
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, lifeline], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _map(child: int) -> None:
    """Write the child's user mapping. If kforge runs as root, the child sets up as root and its command is nobody."""
    place = Path(f"/proc/{child}")
    is_root = os.geteuid() == 0
    users, groups = (f"0 0 1\n{INSIDE} {NOBODY} 1",) * 2 if is_root else (
        f"{INSIDE} {os.geteuid()} 1", f"{INSIDE} {os.getegid()} 1",
    )  # fmt: skip
    if not is_root:
        (place / "setgroups").write_text("deny")
    (place / "uid_map").write_text(users)
    (place / "gid_map").write_text(groups)


def _in_namespaces(orders: CellOrders, born: int, mapped: int) -> int:
    privileges.die_with_parent()
    if os.geteuid() == 0:
        os.setgroups([])
    syscalls.unshare("user")
    os.write(born, b"!")
    if not os.read(mapped, 1):
        return FAILED
    privileges.die_with_parent()  # again, because the change of user has cleared it
    syscalls.unshare(*NAMESPACES)
    if (init := os.fork()) == 0:
        _exit_with(lambda: _init(orders))
    return os.waitstatus_to_exitcode(os.waitpid(init, 0)[1])


def _init(orders: CellOrders) -> int:
    """Run as the first process of the cell."""
    privileges.die_with_parent()
    place = WorkerFolders(Path(orders.work), Path(orders.builds))
    leftovers.hand_over(place.builds, INSIDE, INSIDE)
    root.enter(Border(orders.readable, orders.devices), place, {}, owner=INSIDE)
    # a full /proc over the restricted one: the kernel lets sandboxes inside mount their own only beside a full one
    syscalls.mount("proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    _raise_loopback()
    if (command := os.fork()) == 0:
        _exit_with(lambda: _become(orders))
    while True:
        with contextlib.suppress(ChildProcessError):
            pid, status = os.wait()
            if pid == command:
                return os.waitstatus_to_exitcode(status)


def _raise_loopback() -> None:
    """Bring up the cell's own loopback, by which a sandbox inside proves that workers cannot use it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, name))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


def _become(orders: CellOrders) -> NoReturn:
    """Give up all privileges, and replace this process by the command."""
    privileges.volunteer_for_the_oom_killer()
    privileges.close_all_but((0, 1, 2))
    privileges.limit(PROCESSES)
    os.setresgid(INSIDE, INSIDE, INSIDE)
    os.setresuid(INSIDE, INSIDE, INSIDE)
    privileges.drop_all()
    privileges.die_with_parent()
    seccomp.install([seccomp.SyscallRule(name) for name in seccomp.FORBIDDEN if name not in NEEDED])
    os.chdir(orders.work)
    os.execve(orders.command[0], orders.command, orders.environment)  # noqa: S606 - no shell


def _exit_with(task: Callable[[], int]) -> NoReturn:
    """Run a task in a forked child, and end the child with the task's status."""
    status = FAILED
    try:
        status = task()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status if 0 <= status < 256 else FAILED)


if __name__ == "__main__":
    sys.exit(main(CellOrders.from_json(Path(sys.argv[1]).read_bytes())))

"""The layers: each class starts workers in one kind of sandbox, and ends them with all processes that they started."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.sandbox import landlock, leftovers, privileges, root, seccomp, syscalls
from kforge.evaluation.sandbox.border import TOPOLOGY, without_counters
from kforge.evaluation.sandbox.cells import Cell, Cells
from kforge.evaluation.sandbox.forking import forked, write_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from kforge.evaluation.sandbox.border import Border, WorkerFolders
    from kforge.evaluation.sandbox.cells import Warden

LANDLOCK_NEEDS = (
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/filesystems", "/proc/version", "/proc/driver",
    "/proc/sys/vm/mmap_min_addr",
)  # fmt: skip
"""Files in /proc that programs may read under Landlock."""
CLEAR_SECONDS = 10.0
"""Most seconds for ending the processes that a program left running. Killing takes milliseconds."""
_PAUSE = 1e-3
"""Seconds between two attempts to kill the processes that a program left running."""
ITSELF = "/proc/self"
"""A folder that stays writable under Landlock: an accelerator's driver sets the names of its threads there."""


class Layer:
    """The layer without a sandbox (`--unsafe`), and the base class of the others. Only a fork server's main thread uses
    it."""

    name = "unsafe"
    covers = "own session, empty environment, limits on processes and files"
    leaves = "files, network, other processes and devices are open to the program"
    passed_over = ""
    """The better layers that did not work here, and why; `choose` sets it."""

    def __init__(self, border: Border, warden: Warden | None = None) -> None:  # noqa: ARG002 - for layers with cells
        """`warden` is a process that was forked while this one was small. Without it, a layer with cells forks its
        own."""
        self._border = border
        self._builds: dict[int, Path] = {}
        self._processes = privileges.process_limit()
        # orphans of a program become our children, so that they can be found
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)

    def describe(self) -> str:
        """Return the text for receipts: the name of the layer, what it protects and what it does not, and why no better
        one is used."""
        instead = f"; used because others do not work here ({self.passed_over})" if self.passed_over else ""
        return f"{self.name}: {self.covers}; not covered: {self.leaves}{instead}"

    def spawn(self, place: WorkerFolders, task: Callable[[], None], *, keep: tuple[int, ...]) -> int:
        """Fork a worker that runs `task` in the sandbox, and return its pid.

        Of our file descriptors, the worker gets only those in `keep`. Raises OSError if it cannot be started.
        """
        place.work.mkdir(parents=True, exist_ok=True)
        place.builds.mkdir(parents=True, exist_ok=True)
        place.builds.chmod(stat.S_IRWXU)  # also clears a set-group-ID bit, which new entries would inherit
        pid = self._fork(place, task, keep)
        self._builds[pid] = place.builds
        return pid

    def freezer(self, pid: int) -> int | None:  # noqa: ARG002 - for layers with cells
        """Return the file descriptor for `cells.Freezer`, which stops all processes of a worker at once; None if this
        layer has none."""
        return None

    def kill(self, pid: int) -> None:
        """Kill a worker and its process group. Call `clear` to end its other processes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def clear(self, pid: int) -> None:
        """End all processes that a reaped worker has left, and put its builds in order. Raises TimeoutError if
        they do not end within CLEAR_SECONDS."""
        builds = self._builds.pop(pid)
        end = time.monotonic() + CLEAR_SECONDS
        while strays := _children() - set(self._builds):
            if time.monotonic() > end:  # they replace themselves faster than they are killed, or cannot be killed
                raise TimeoutError("a program's processes did not end")
            for stray in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(stray, signal.SIGKILL)
            for stray in strays:  # only after all were signalled, and without waiting for one that does not end
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(stray, os.WNOHANG)
            time.sleep(_PAUSE)
        leftovers.put_in_order(builds)

    def close(self) -> None:
        """End every worker and all processes that they started."""
        for pid in list(self._builds):
            self.kill(pid)
            os.waitpid(pid, 0)
            self.clear(pid)

    def _fork(self, place: WorkerFolders, task: Callable[[], None], keep: tuple[int, ...]) -> int:
        leftovers.hand_over(place.builds, os.geteuid(), os.getegid())
        return forked(lambda: self._settle(place, task, keep))

    def _settle(
        self, place: WorkerFolders, task: Callable[[], None], keep: tuple[int, ...], cell: Cell | None = None
    ) -> None:
        """Prepare this new worker process: give up rights, enter the cell if there is one, install the restrictions.
        Then run `task`. `keep` are the file descriptors that stay open, besides standard input, output and error."""
        os.setsid()
        write_to(place.log)
        privileges.close_all_but((0, 1, 2, *keep, *(() if cell is None else (cell.init,))))
        privileges.volunteer_for_the_oom_killer()
        privileges.limit(self._processes)
        privileges.bound()
        if cell is not None:
            cell.enter()
        privileges.drop_all()
        privileges.die_with_parent()
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)  # daemons stay in the worker's tree, to be stopped
        os.chdir(place.work)
        self._restrict(place)
        task()

    def _restrict(self, place: WorkerFolders) -> None:
        """Install the restrictions of this layer. Here there are none."""


class Landlock(Layer):
    """Restricts a worker by Landlock and seccomp only, for kernels that allow no namespaces."""

    name = "landlock"

    def __init__(self, border: Border, warden: Warden | None = None) -> None:
        super().__init__(border, warden)
        self._version = landlock.abi()
        if self._version < landlock.LEAST:
            found = f"has version {self._version}" if self._version else "has none"
            raise OSError(f"Landlock {landlock.LEAST} or newer is needed, and the kernel {found}")
        if platform.machine() not in syscalls.ARCHITECTURES:
            raise OSError(f"no seccomp filter is written for {platform.machine()}")
        self.covers = (
            f"files by Landlock {self._version}, network and dangerous system calls by seccomp, no capabilities, "
            "limits on processes and files"
        )
        self.leaves = (
            "names, sizes and times of other files, existence of other processes, the space on the disk, "
            "the accelerator's driver, memory and processor time"
            f"{', the number of processes (nothing limits those of root)' if os.geteuid() == 0 else ''}"
        )

    def _restrict(self, place: WorkerFolders) -> None:
        # a rule for a symbolic link would apply to its target; the border lists the target itself if it may be read
        shown = (path for path in self._border.readable if not Path(path).is_symlink())
        parts = (part for path in shown for part in (without_counters() if path == TOPOLOGY else (path,)))
        readable = [path for path in (*parts, *LANDLOCK_NEEDS) if Path(path).exists()]
        landlock.restrict(
            readable=readable,
            writable=(place.work, place.builds, ITSELF),
            devices=self._border.device_nodes(),
            listable=[TOPOLOGY] if Path(TOPOLOGY).exists() else [],
        )
        confined = self._version >= landlock.SIGNALS_SINCE
        drivers = bool(self._border.devices)
        refused = seccomp.rules(namespaced=False, signals_confined=confined, pid=os.getpid(), drivers=drivers)
        seccomp.install(refused)


class Namespaces(Layer):
    """Gives each worker a private root and private user, PID, network, IPC, UTS and cgroup namespaces; also uses
    seccomp.

    Landlock is added inside if the kernel has it.
    """

    name = "namespaces"
    as_nobody = False
    """Whether workers run under a user id that owns nothing. Needs root."""

    def __init__(self, border: Border, warden: Warden | None = None) -> None:
        if platform.machine() not in syscalls.ARCHITECTURES:
            raise OSError(f"no seccomp filter is written for {platform.machine()}")
        super().__init__(border, warden)
        self._version = landlock.abi()
        inside = f"Landlock {self._version} and seccomp" if self._version >= landlock.LEAST else "seccomp"
        self.covers = (
            "private root, processes, network and devices, "
            f"{'another user, ' if self.as_nobody else ''}{inside} inside, no capabilities, "
            "limits on processes, files and scratch space"
        )
        self.leaves = "the accelerator's driver, memory and processor time, side channels, space for a program's builds"
        self._cells = Cells(border, warden, as_nobody=self.as_nobody)
        self._open: dict[int, Cell] = {}

    def freezer(self, pid: int) -> int | None:
        return self._open[pid].freezer

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._open[pid].kill()

    def clear(self, pid: int) -> None:
        self._open.pop(pid).destroy()
        leftovers.put_in_order(self._builds.pop(pid))

    def _fork(self, place: WorkerFolders, task: Callable[[], None], keep: tuple[int, ...]) -> int:
        cell = self._cells.open(place)
        cell.await_worker()
        pid = forked(lambda: self._settle(place, task, keep, cell))
        self._open[pid] = cell
        return pid

    def _restrict(self, place: WorkerFolders) -> None:
        if self._version >= landlock.LEAST:
            # all of /proc is writable, because an accelerator's driver sets the names of its threads there, and under a
            # sanitizer or profiler the worker is another process than this one; it shows only the cell's processes
            landlock.restrict(
                # this process's own executable, which lies outside the private root: a sanitizer reads it for symbols
                readable=("/", "/proc/self/exe"),
                writable=(place.work, place.builds, "/proc", *root.SCRATCH),
                devices=("/dev",),
            )
        seccomp.install(seccomp.rules(namespaced=True))


class NamespacesAsNobody(Namespaces):
    """The layer `Namespaces` for root: workers also get a user id that owns nothing, as a second protection."""

    as_nobody = True


def _children() -> set[int]:
    """Return the pids of the children of this process."""
    try:
        lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    except OSError:
        lists = []
    if lists:
        return {int(pid) for pids in lists for pid in pids.split()}
    return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent(path) == os.getpid()}


def _parent(process: Path) -> int | None:
    """Return the parent's pid of a process in /proc; None if the process has ended."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile
        return None

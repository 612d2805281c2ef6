"""Decides whose code does the work: a program is stopped at random moments, and its program counters are looked up.

This is done from outside, in the kernel's own tables, so a program cannot hide it. It can bring a library along under
another name; reading its source shows that. For accelerators see timing/kernel_ownership.py.
"""

from __future__ import annotations

import bisect
import os
import platform
import re
import secrets
import sys
import sysconfig
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from kforge.records import Trace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kforge.evaluation.processes.launch import Process

Owner = Literal["authored", "library", "neither"]

_NUMERICS = re.compile(r"blas|lapack|mkl|dnnl|fftw|armpl|eigen|tbb", re.IGNORECASE)
"""System libraries that compute; the others (the C library, OpenMP, the loader) serve either side."""
_SERVANTS = re.compile(r"libtorch_python|libc10|lib(?:g|i|)omp[-.\d]|libstdc|libgcc", re.IGNORECASE)
"""Files of packages that serve either side: bindings, allocators, threads."""
_IN_USER_CODE = "-1"
_SYSTEM_CALL = {"x86_64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}.get(platform.machine())
"""The instruction that enters the kernel; None where it is not known here."""
TELLS_COUNTERS = Path("/proc/self/syscall").exists()
"""Whether this kernel reports where a stopped thread is."""


GAP = (1e-4, 1e-3)
"""Seconds between two samples of a running block, at random: a program cannot predict them."""


HARDLY_RUN = 50_000
"""Nanoseconds: less than the shortest gap, and more than stopping and continuing takes."""


class CodeSampler:
    """Stops a running process at random moments, and notes in `found` the files whose code it was in.

    It uses a thread that starts when the process was continued: if it stopped the process earlier, it would work
    against the thread that continues it, and wait for a stop that does not come.
    """

    def __init__(self, process: Process, looks: int) -> None:
        self.found: list[str] = []
        self._process = process
        self._begun, self._ended = threading.Event(), threading.Event()
        self._watcher = threading.Thread(target=self._look, args=(looks,), daemon=True)
        self._watcher.start()

    def begin(self) -> None:
        """Start sampling: the process runs from now on."""
        self._begun.set()

    def close(self) -> None:
        """Stop sampling; call it before the process is held for another reason."""
        self._ended.set()
        self._begun.set()
        self._watcher.join()

    def _look(self, looks: int) -> None:
        chance = secrets.SystemRandom()
        seen: dict[str, _Moment] = {}
        self._begun.wait()
        for _ in range(looks):
            time.sleep(chance.uniform(*GAP))
            if self._ended.is_set():
                return
            with suppress(TimeoutError):
                self._process.hold()
                self.found.extend(whereabouts(self._process.pid, seen))
            self._process.release()


class _Moment(NamedTuple):
    """A thread that was stopped in its own code: where it was, and how long it had run by then."""

    address: str
    nanoseconds: int

    def is_again(self, before: _Moment) -> bool:
        """Whether the thread waited for a core all the time, and so has not moved: then it is the same moment."""
        return self.address == before.address and self.nanoseconds - before.nanoseconds < HARDLY_RUN


def whereabouts(pid: int, seen: dict[str, _Moment]) -> list[str]:
    """Return the files whose code the threads of a held process were running; an empty name for code in no file.

    A thread inside a system call waits or moves memory, and does not count; nor does one that has not moved since it
    was last `seen`, which is noted there.
    """
    found = []
    places = _Map.of(pid)
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, ValueError):
            words = (task / "syscall").read_text().split()
            if words[0] != _IN_USER_CODE or _is_at_a_system_call(pid, int(words[-1], 16)):
                continue
            moment = _Moment(words[-1], int((task / "schedstat").read_text().split()[0]))
            if task.name not in seen or not moment.is_again(seen[task.name]):
                found.append(places.file_at(int(moment.address, 16)))
            seen[task.name] = moment
    return found


def _is_at_a_system_call(pid: int, address: int) -> bool:
    """Return whether a thread was stopped in a system call that it repeats when it continues: the kernel then says that
    it is in its own code, at that instruction or behind it. Raises OSError."""
    if _SYSTEM_CALL is None:
        return False
    size = len(_SYSTEM_CALL)
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        around = os.pread(descriptor, 2 * size, address - size)
    finally:
        os.close(descriptor)
    return _SYSTEM_CALL in (around[:size], around[size:])


def census(files: Iterable[str], own: Collection[str] = ()) -> Trace:
    """Count to whom the moments belong. `own`: parts of the paths of files that only do the program's own work."""
    owners = ["authored" if any(part in file for part in own) else owner(file) for file in files]
    return Trace(authored=owners.count("authored"), library=owners.count("library"), neither=owners.count("neither"))


def owner(file: str) -> Owner:
    """Return who wrote the code in a file that a worker has mapped. A file that is not installed is the program's."""
    path = file.removesuffix(" (deleted)")
    if path.startswith("[") or _SERVANTS.search(Path(path).name):  # [vdso] and similar entries
        return "neither"
    if any(path.startswith(folder) for folder in _PACKAGES):
        return "library"
    if _NUMERICS.search(Path(path).name):
        return "library"
    if path.startswith(_SYSTEM):
        return "neither"
    return "authored"


def _folders(*places: str) -> tuple[str, ...]:
    """Return the folders as the kernel names them: an environment may be reached by a link."""
    return tuple({f"{Path(place).resolve()}/" for place in places})


_TORCH = find_spec("torch")
_PACKAGES = _folders(
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    *(str(Path(place).parent) for place in (_TORCH.submodule_search_locations or () if _TORCH else ())),
)
_SYSTEM = (*_folders(sys.base_prefix, sys.prefix), "/usr/", "/lib", "/opt/", "/nix/", "/dev/")


class _Map:
    """The file at each address of a process: a thousand lines, of which one lookup reads ten."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    @classmethod
    def of(cls, pid: int) -> _Map:
        try:
            return cls(Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines())
        except OSError:
            return cls([])

    def file_at(self, address: int) -> str:
        index = bisect.bisect_right(self._lines, address, key=_lowest) - 1  # the kernel has them in order
        if index < 0:
            return ""
        place, *name = self._lines[index].split(maxsplit=5)
        if address >= int(place.partition("-")[2], 16):
            return ""
        return name[4] if len(name) > 4 else ""


def _lowest(line: str) -> int:
    return int(line.partition("-")[0], 16)

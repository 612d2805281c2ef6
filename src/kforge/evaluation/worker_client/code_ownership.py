"""Finds out whose code does the work on a host: stops the program at random moments and looks up its program counters.

This is done from outside, by the kernel's tables, so a program cannot prevent it. A program could bring a library along
under another name; only reading its source shows that. For devices see timing/kernel_ownership.py.
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
"""Whose code: the program's own, a library's, or code that serves both (allocators, threads)."""

_NUMERICS = re.compile(r"blas|lapack|mkl|dnnl|fftw|armpl|eigen|tbb", re.IGNORECASE)
"""Names of system libraries that compute. Other system libraries (libc, OpenMP, the loader) serve any program."""
_OPENMP = re.compile(r"lib(?:g|i)?omp[-.\d]")
"""Names of OpenMP's runtime. Its threads spin there while they wait for the next parallel loop."""
_SERVANTS = re.compile(rf"libtorch_python|libc10|{_OPENMP.pattern}|libstdc|libgcc", re.IGNORECASE)
"""Files of Python packages that serve any program: bindings, allocators, threads."""
_IN_USER_CODE = "-1"
"""The number in /proc/PID/task/TID/syscall for a thread that is not in a system call."""
_SYSTEM_CALL = {"x86_64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}.get(platform.machine())
"""The machine instruction of a system call; None for other architectures."""
TELLS_COUNTERS = Path("/proc/self/syscall").exists()
"""Whether this kernel reports the program counter of a stopped thread."""


GAP = (1e-4, 1e-3)
"""Shortest and longest seconds between two moments at which a program is stopped. They are random, so that a program
cannot predict them."""


WRITABLE_CODE = "[writable code]"
"""Stands for the file of code in memory that is writable and executable at once and belongs to no file. On a host torch
runs the code there that oneDNN makes for convolutions and products on x86-64. Numba and other users of LLVM make their
code read-only before it runs."""


HARDLY_RUN = 50_000
"""Nanoseconds. A thread that ran for less between two samples counts as not moved. This is less than the shortest gap
between samples, and more than stopping and continuing takes."""


class CodeSampler:
    """Stops a running process at random moments, and collects the code positions of its threads in `found`.

    A thread of this process takes the samples. It waits for `begin`: if it stopped the process earlier, it would work
    against the code that continues the process.
    """

    def __init__(self, process: Process, looks: int) -> None:
        self.found: list[CodePosition] = []
        self._process = process
        self._begun, self._ended = threading.Event(), threading.Event()
        self._watcher = threading.Thread(target=self._look, args=(looks,), daemon=True)
        self._watcher.start()

    def begin(self) -> None:
        """Start sampling. Call it when the process runs."""
        self._begun.set()

    def close(self) -> None:
        """End sampling. Call it before the process is stopped for another reason."""
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
                self.found.extend(positions(self._process.pid, seen))
            self._process.release()


class _Moment(NamedTuple):
    """A sample of a thread: its program counter, and its processor time so far."""

    address: str
    nanoseconds: int

    def is_again(self, before: _Moment) -> bool:
        """Return whether the thread has hardly run since the sample `before`, because it waited for a core. Then both
        samples count as one."""
        return self.address == before.address and self.nanoseconds - before.nanoseconds < HARDLY_RUN


class CodePosition(NamedTuple):
    """Where a thread was in the code."""

    file: str
    """The mapped file. Empty for code in no file, or WRITABLE_CODE."""
    address: int
    """Bytes from the lowest address at which the file is mapped."""


def positions(pid: int, seen: dict[str, _Moment]) -> list[CodePosition]:
    """Return where the threads of a stopped process were.

    A thread in a system call waits or copies memory, and does not count. A thread that has not run since its last
    sample does not count either. `seen` has the last samples by thread, and is updated.
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
                found.append(places.position(int(moment.address, 16)))
            seen[task.name] = moment
    return found


def _is_at_a_system_call(pid: int, address: int) -> bool:
    """Return whether a thread was stopped in a system call that it will repeat. Raises OSError if its memory cannot
    be read.

    The kernel then reports that the thread is in its own code, at the instruction of the system call or behind it.
    """
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
    """Count the samples by the owner of their file. A file whose path contains one of `own` is the program's own."""
    owners = ["authored" if any(part in file for part in own) else owner(file) for file in files]
    return Trace(authored=owners.count("authored"), library=owners.count("library"), neither=owners.count("neither"))


def working(files: Iterable[str]) -> list[str]:
    """Return the samples without threads in OpenMP's runtime, which wait there for torch's next parallel loop.

    Where all code outside of libraries counts as the program's own, such waiting would count for it: a program that
    left all work to torch had three samples there for each sample in torch.
    """
    return [file for file in files if not _OPENMP.match(Path(file).name)]


def owner(file: str) -> Owner:
    """Return whose code a mapped file contains. A file that is not installed belongs to the program."""
    path = file.removesuffix(" (deleted)")
    if path == WRITABLE_CODE:
        return "library"
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
    """Return the folders without symbolic links, as the kernel names them."""
    return tuple({f"{Path(place).resolve()}/" for place in places})


_TORCH = find_spec("torch")
_PACKAGES = _folders(
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    *(str(Path(place).parent) for place in (_TORCH.submodule_search_locations or () if _TORCH else ())),
)
"""Folders of installed Python packages."""
_SYSTEM = (*_folders(sys.base_prefix, sys.prefix), "/usr/", "/lib", "/opt/", "/nix/", "/dev/")
"""Folders of the interpreter and of the system."""


class _Map:
    """The memory map of a process: tells which file is mapped at an address."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    @classmethod
    def of(cls, pid: int) -> _Map:
        try:
            return cls(Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines())
        except OSError:
            return cls([])

    def position(self, address: int) -> CodePosition:
        """Return where an address is. The name of the file is empty if none is mapped there."""
        index = bisect.bisect_right(self._lines, address, key=_lowest) - 1  # the kernel has them in order
        if index < 0:
            return _NOWHERE
        place, rights, *rest = self._lines[index].split(maxsplit=5)
        if address >= int(place.partition("-")[2], 16):
            return _NOWHERE
        if len(rest) <= 3:
            return _WRITABLE if "w" in rights else _NOWHERE
        file = rest[3]
        # the parts of a file follow each other; a gap between them belongs to no file
        while index > 0 and self._lines[index - 1].endswith(f" {file}"):
            index -= 1
        return CodePosition(file, address - _lowest(self._lines[index]))


_NOWHERE = CodePosition("", 0)
_WRITABLE = CodePosition(WRITABLE_CODE, 0)


def _lowest(line: str) -> int:
    return int(line.partition("-")[0], 16)

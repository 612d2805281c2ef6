"""Replaces files of /proc and /sys about the whole machine by copies, so that a program cannot see when others run.

A program that sees that the other side is being timed could slow that side down. So in a cell's /proc only files about
processes, and files that never change, are live. All others are copies or empty. The same holds for the counters of
memory, frequencies and idle states in /sys. Not covered: system calls such as `sysinfo`, and the counters of single
devices, if a platform needs all of /sys.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kforge.evaluation.sandbox import syscalls

_PROC = Path("/proc")
_LIVE = frozenset({
    # these never change while a machine runs
    "cmdline", "config.gz", "consoles", "devices", "execdomains", "filesystems", "iomem", "ioports", "kallsyms", "misc",
    "version", "version_signature",
    # folders that programs and drivers need; what changes in them is in _OF_THE_SYSTEM
    "sys", "bus", "driver",
    # of the cell's own namespaces
    "sysvipc",
})  # fmt: skip
"""Entries of /proc that a worker sees live and not as copies. Entries of processes are live as well."""
_OF_THE_MACHINE = ("sys", "bus", "driver")
"""Folders in /proc that stay live and belong to the whole machine. They are mounted read-only."""
_OF_THE_SYSTEM = (
    "proc/sys/fs/aio-nr", "proc/sys/fs/dentry-state", "proc/sys/fs/file-nr", "proc/sys/fs/inode-nr",
    "proc/sys/fs/inode-state", "proc/sys/fs/quota", "proc/sys/kernel/pty/nr",
    "sys/devices/system/node/node*/meminfo", "sys/devices/system/node/node*/numastat",
    "sys/devices/system/node/node*/vmstat", "sys/devices/system/*/cpufreq", "sys/devices/system/*/*/cpufreq",
    "sys/devices/system/*/*/cpuidle",
    "sys/fs", "sys/power", "sys/kernel/debug", "sys/kernel/irq", "sys/kernel/slab", "sys/kernel/tracing",
    "sys/devices/virtual/block", "sys/devices/virtual/powercap", "sys/devices/virtual/thermal",
    "sys/devices/virtual/workqueue",
)  # fmt: skip
"""Files and folders inside /proc/sys and /sys that are replaced, because they change while other programs run."""
_FRESH = ("/proc/meminfo",)
"""Files that are copied again for each worker: a program may choose its buffer sizes by the memory that is free now."""
_MOST = 4 << 20
"""Most bytes of a file that are copied. A machine with some hundred processors needs one or two MB."""


def take() -> dict[str, bytes]:
    """Return the contents of the files to replace, by path. Folders and unreadable files have empty contents."""
    live = ("self", "thread-self", *_LIVE)
    names = [name for name in os.listdir(_PROC) if not name.isdecimal() and name not in live]  # noqa: PTH208
    found = [*(_PROC / name for name in names), *(path for form in _OF_THE_SYSTEM for path in Path("/").glob(form))]
    return {str(path): _content(str(path)) for path in found if not path.is_symlink()}


def put_in_place(root: Path, taken: dict[str, bytes]) -> None:
    """Mount the copies over the live files below `root`, which has its own /proc and maybe a /sys. Raises OSError if
    the kernel refuses a mount."""
    # strings instead of paths: this is done for every worker
    folder, empty, copy = (f"{root}/.{name}" for name in ("folder", "empty", "copy"))
    Path(folder).mkdir()
    Path(empty).touch()
    listed = [f"/proc/{name}" for name in os.listdir(root / "proc") if not name.isdecimal() and name not in _LIVE]  # noqa: PTH208
    for path in dict.fromkeys((*listed, *taken)):
        target = f"{root}{path}"
        try:
            mode = os.lstat(target).st_mode
        except FileNotFoundError:  # this root shows no such folder
            continue
        if stat.S_ISLNK(mode):
            continue
        content = _content(path) if path in _FRESH else taken.get(path, b"")
        if content:
            _write(copy, content)
        source = folder if stat.S_ISDIR(mode) else copy if content else empty
        syscalls.bind(source, target, read_only=True)
        if content:
            os.unlink(copy)  # noqa: PTH108 - the mount keeps the file
    for name in _OF_THE_MACHINE:
        if (shown := root / "proc" / name).exists():
            syscalls.bind(shown, shown, read_only=True)
    Path(empty).unlink()
    Path(folder).rmdir()


def _write(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _content(path: str) -> bytes:
    """Return the content of a regular file that everybody may read. Other files give an empty result: they may be
    endless, block or have side effects."""
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode) or not mode & stat.S_IROTH:
            return b""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return b"".join(iter(lambda: os.read(descriptor, _MOST), b""))[:_MOST]
        finally:
            os.close(descriptor)
    except OSError:
        return b""

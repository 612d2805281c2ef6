"""Builds the private root folder of a worker: it shows only what the border allows (`border.py`), mostly read-only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.constants import SCRATCH_BYTES, SCRATCH_ENTRIES
from kforge.evaluation.sandbox import snapshots, syscalls
from kforge.evaluation.sandbox.syscalls import MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_REC

if TYPE_CHECKING:
    from kforge.evaluation.sandbox.border import Border, WorkerFolders

SCRATCH = ("/tmp", "/dev/shm")  # noqa: S108 - private folders, in the private root
"""Folders that are private, empty and writable for each worker."""
_LINKS = {"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2"}
"""Symbolic links in the private root, with their targets."""
_ACCOUNTS = {
    "/etc/passwd": "kforge:x:{id}:{id}::{home}:/bin/sh\n",
    "/etc/group": "kforge:x:{id}:\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
}
"""Small files in the private root: user, group and host names."""


def enter(border: Border, place: WorkerFolders, machine: dict[str, bytes], *, owner: int) -> None:
    """Build the private root and make it the root of this process. Raises OSError if the kernel refuses a mount.

    This process must be PID 1 of new mount and PID namespaces. `machine` has the copies that replace files of /proc
    about the whole machine (`snapshots.py`). `owner` is the user id of the worker.
    """
    syscalls.mount("none", "/", flags=MS_REC | MS_PRIVATE)
    root = place.work  # a folder of kforge, as the mount point; its contents are not needed any more
    syscalls.mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=755")
    builds = place.builds.resolve()
    for path in sorted({*border.readable, *SCRATCH, str(place.work), str(builds), "/proc"}, key=_depth):
        target = Path(f"{root}{path}")
        if path == "/proc":
            target.mkdir()
            # the worker's own entries stay writable: an accelerator's driver sets the names of its threads there
            syscalls.mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        elif path in SCRATCH or path == str(place.work):
            target.mkdir(parents=True, exist_ok=True)
            options = f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_ENTRIES},mode=700,uid={owner},gid={owner}"
            syscalls.mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, options)
        else:
            _show(Path(path), target, read_only=path != str(builds))
    for node in border.device_nodes():
        target = Path(f"{root}{node}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        syscalls.bind(node, target, read_only=False, devices=True)
    for link, pointed in _LINKS.items():
        Path(f"{root}{link}").symlink_to(pointed)
    for name, text in _ACCOUNTS.items():
        target = Path(f"{root}{name}")
        target.parent.mkdir(exist_ok=True)
        target.write_text(text.format(id=owner, home=place.work))
    snapshots.put_in_place(root, machine)
    syscalls.make_read_only(root)
    syscalls.pivot_into(root)


def _show(path: Path, target: Path, *, read_only: bool) -> None:
    """Make a path visible at `target`, by a bind mount; a symbolic link is copied as a link."""
    if path.is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path.readlink())
        return
    if path.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    syscalls.bind(path, target, read_only=read_only)


def _depth(path: str) -> int:
    return len(Path(path).parts)

"""Examines, repairs and removes folders that foreign code has written, safely even if that code was malicious.

A program can nest folders deeper than any path can be long, deny access to them, fill them with empty files, and
replace them by links while kforge looks. So each step here uses a file descriptor of the parent folder and follows no
link. Removing needs no recursion, and no open descriptor for each level.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.constants import BUILD_BYTES, BUILD_DEPTH, BUILD_ENTRIES, REMOVAL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LENT_RIGHTS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX | stat.S_IWOTH
"""Mode bits that are removed: set-user-ID, set-group-ID and sticky bits, and the right of everybody to write."""
_BATCH = 128
"""Entries of a folder that are removed at a time."""


def put_in_order(folder: Path) -> None:
    """Remove dangerous mode bits from the builds of a program; remove the whole folder if it is too large. Never
    raises.

    A folder with more than BUILD_BYTES, BUILD_ENTRIES or BUILD_DEPTH could fill the disk. One that cannot be examined
    is removed as well.
    """
    size = 0

    def look(parent: int, name: str, status: os.stat_result) -> None:
        nonlocal size
        size += status.st_size
        if status.st_mode & _LENT_RIGHTS and not stat.S_ISLNK(status.st_mode):
            _change_mode(parent, name, lambda mode: mode & ~_LENT_RIGHTS)

    if not _visit(folder, look) or size > BUILD_BYTES:
        remove(folder)
    with contextlib.suppress(OSError):
        _change_mode(None, str(folder), lambda _: stat.S_IRWXU)


def hand_over(folder: Path, user: int, group: int) -> None:
    """Change the owner of a folder and of everything in it.

    If the builds in it are too deep or too many, they are removed instead. Raises OSError if the owner cannot be
    changed.
    """
    if folder.stat().st_uid == user:
        return

    def give(parent: int, name: str, _: os.stat_result) -> None:
        os.chown(name, user, group, dir_fd=parent, follow_symlinks=False)

    if not _visit(folder, give):
        remove(folder)
        folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, user, group, follow_symlinks=False)


def remove(folder: Path, *, seconds: float = REMOVAL_SECONDS) -> None:
    """Remove a folder with its contents, as far as possible in these seconds. Never raises.

    Only one folder is open at a time, and the way back up is `..`, so that any depth works.
    """
    with contextlib.suppress(OSError):
        _remove(folder, seconds, lambda _: None)


def remove_if_abandoned(folder: Path) -> None:
    """Remove a folder if it belongs to this user and no process holds a lock on it. Never raises."""
    with contextlib.suppress(OSError):  # a lock that is held raises OSError, too
        if folder.lstat().st_uid == os.geteuid():
            _remove(folder, REMOVAL_SECONDS, lambda top: fcntl.flock(top, fcntl.LOCK_EX | fcntl.LOCK_NB))


def _remove(folder: Path, seconds: float, claim: Callable[[int], None]) -> None:
    """Remove a folder with its contents. `claim` is called with its descriptor first, and may raise OSError to prevent
    it."""
    end = time.monotonic() + seconds
    top = _opened(None, str(folder))
    try:
        claim(top)
        _empty(top, end)
    finally:
        os.close(top)
    folder.rmdir()


def _visit(folder: Path, act: Callable[[int, str, os.stat_result], None]) -> bool:
    """Call `act` for every entry, at any depth. Returns false if the entries are too deep, too many, or cannot be
    examined."""
    count = 0
    path: list[tuple[int, Iterator[str]]] = []
    try:
        _descend(path, None, str(folder))
        while path:
            parent, names = path[-1]
            name = next(names, None)
            if name is None:
                os.close(path.pop()[0])
                continue
            count += 1
            if count > BUILD_ENTRIES:
                return False
            with contextlib.suppress(FileNotFoundError):  # another worker of the same program may have removed it
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                act(parent, name, status)
                if stat.S_ISDIR(status.st_mode):
                    if len(path) > BUILD_DEPTH:
                        return False
                    _descend(path, parent, name)
    except FileNotFoundError:  # there are no builds
        return True
    except OSError:  # what cannot be examined must not stay
        return False
    finally:
        for descriptor, _ in path:
            os.close(descriptor)
    return True


def _descend(path: list[tuple[int, Iterator[str]]], parent: int | None, name: str) -> None:
    descriptor = _opened(parent, name)
    path.append((descriptor, iter(())))  # so that it is closed whatever happens
    path[-1] = (descriptor, iter(_names(descriptor, BUILD_ENTRIES + 1)))


def _opened(parent: int | None, name: str) -> int:
    """Open a folder, and change its mode so that only its owner can write. Raises OSError if it cannot be opened
    or changed."""
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:  # its owner, which is our own user, has denied access
        _change_mode(parent, name, lambda mode: mode | stat.S_IRWXU)
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    wanted = (mode & ~_LENT_RIGHTS) | stat.S_IRWXU
    if wanted != mode:
        with contextlib.suppress(OSError):  # another user's folder: a later step fails if that matters
            os.fchmod(descriptor, wanted)
    return descriptor


def _names(folder: int, most: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, most)]


def _change_mode(parent: int | None, name: str, change: Callable[[int], int]) -> None:
    """Change the mode of an entry, unless it is a link. Raises OSError if it is missing or may not be changed."""
    if not hasattr(os, "O_PATH"):
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        os.chmod(name, change(stat.S_IMODE(status.st_mode)), dir_fd=parent, follow_symlinks=False)
        return
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISLNK(status.st_mode):
            # by descriptor: the entry that was examined, even if its name now belongs to another
            Path(f"/proc/self/fd/{descriptor}").chmod(change(stat.S_IMODE(status.st_mode)))
    finally:
        os.close(descriptor)


def _empty(top: int, end: float) -> None:
    """Remove the contents of a folder until nothing removable remains or the time is over. Raises OSError if the
    folder cannot be read."""
    here = os.dup(top)
    above: list[tuple[str, tuple[int, int]]] = []  # the folder's name in its parent, and the parent's identity
    stuck: list[set[str]] = [set()]  # names that cannot be removed, by level
    try:
        while time.monotonic() < end:
            names = [name for name in _names(here, _BATCH + len(stuck[-1])) if name not in stuck[-1]]
            full = next((name for name in names if not _dropped(here, name)), None)
            if full is not None:
                try:
                    inner = _opened(here, full)
                except OSError:
                    stuck[-1].add(full)
                    continue
                above.append((full, _identity(here)))
                stuck.append(set())
                os.close(here)
                here = inner
            elif not names:
                if not above:
                    return
                name, parent = above.pop()
                stuck.pop()
                inner, here = here, os.open("..", _FOLDER, dir_fd=here)
                os.close(inner)
                if _identity(here) != parent:  # another process moves folders meanwhile
                    return
                if not _dropped(here, name):
                    stuck[-1].add(name)
    finally:
        os.close(here)


def _identity(folder: int) -> tuple[int, int]:
    """Return device and inode number of an open folder."""
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _dropped(parent: int, name: str) -> bool:
    """Try to remove a file or an empty folder. Returns whether that worked."""
    for drop in (os.unlink, os.rmdir):
        with contextlib.suppress(OSError):
            drop(name, dir_fd=parent)
            return True
    return False

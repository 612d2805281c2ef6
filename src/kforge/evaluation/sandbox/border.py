"""The border of a sandbox: which files a worker may read, which two folders it may write, and which devices it may
open."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TOPOLOGY = "/sys/devices/system"
"""The folder in which Linux describes processors and memory."""

COUNTERS = ("cpuidle", "cpufreq")
"""Names of its folders whose files change while other programs run."""

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
    TOPOLOGY,
)  # fmt: skip
"""System files and folders that every worker may read: programs, libraries, and the machine's topology. Of /etc only
the files that loaders need, because others may hold secrets."""

_ROOTS = ("/usr", "/usr/local", "/opt", "/nix/store")
"""System folders whose direct files no program needs. Software is installed in their subfolders."""

_LIBRARIES = frozenset(
    f"{root}/{name}"
    for root in ("", "/usr", "/usr/local")
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share")
)
"""System folders that every program needs. They are never hidden, even if the user works in one of them."""

_OF_A_PREFIX = ("bin", "include", "lib", "lib64", "share", "pyvenv.cfg")
"""Parts of a Python installation (`sys.prefix`) that are shown if the installation folder also holds private files,
such as a virtual environment inside a project."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Device nodes that every worker may open."""


@dataclass(frozen=True)
class WorkerFolders:
    """The two folders that one worker may write: `work` is removed after it, `builds` is kept for the same program."""

    work: Path
    builds: Path

    @property
    def log(self) -> Path:
        """The file for the worker's standard streams. It is outside of `work`, so that the worker cannot replace it."""
        return self.work.with_name(f"{self.work.name}.log")


@dataclass(frozen=True)
class Border:
    """What all workers of a fork server may access besides their own folders: readable paths and devices."""

    readable: tuple[str, ...]
    devices: tuple[str, ...]

    @classmethod
    def around(
        cls,
        imports: str,
        tool_path: str,
        extra: Iterable[Path],
        nodes: Iterable[str],
        private: Iterable[Path] = (),
    ) -> Self:
        """Return the border for an import path, a PATH, more folders to read (`extra`) and what a platform's driver
        needs.

        `nodes` are patterns of device nodes and of the driver's files. `private` are paths to hide, besides those that
        are private to this process. A folder on PATH that contains something private is not shown, but a folder inside
        it is shown if it is on PATH itself. Of a system folder that contains something private, the other parts are
        shown.
        """
        nodes, private = tuple(nodes), _hidden([*private, *private_folders()])
        elsewhere = [form for form in nodes if form.startswith("/") and not form.startswith("/dev/")]
        files = [str(path) for form in elsewhere for path in _found(form)]
        tools = [path for path in tool_path.split(os.pathsep) if shareable(path, private)]
        named = [*imports.split(os.pathsep), *tools, *map(str, extra)]
        entries = [path for path in named if Path(path).is_absolute()]  # an empty entry means the current folder
        hops = [hop.parent if shareable(str(hop.parent), private) else hop for hop in _hops(Path(sys.executable))]
        prefixes = [path for prefix in (sys.prefix, sys.base_prefix) for path in _installed(Path(prefix), private)]
        interpreter = [*map(str, prefixes), *map(str, hops)]
        system = [part for folder in SYSTEM for part in _without(folder, private)]
        devices = tuple(form for form in nodes if form not in elsewhere)
        # an accelerator's driver looks for its device in /sys
        wanted = [*system, *(("/sys",) if devices else ()), *files, *interpreter, *entries]
        # where these links lead: showing a link does not show its target
        wanted += [str(_resolved(path)) for path in (*interpreter, *entries, *files)]
        wanted += [part for link in filter(os.path.islink, SYSTEM) for part in _without(str(_resolved(link)), private)]
        shown = [path for path in wanted if _resolved(path) != Path("/") and is_text(path)]
        present = {str(Path(path)) for path in shown if os.path.lexists(path)}
        return cls(_outermost(present), devices)

    def device_nodes(self) -> list[str]:
        """Return the paths of the allowed device nodes that exist now."""
        named = (node for form in self.devices for node in _found(form))
        return [*DEVICES, *sorted(str(node) for node in named if not node.is_dir())]


def is_text(path: str) -> bool:
    """Return whether a path is valid UTF-8, so that it can be sent to another process."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def private_folders() -> list[Path]:
    """Return what no candidate may read: the current working directory, the temporary folder and the home folder."""
    private = [Path.cwd(), Path(tempfile.gettempdir())]
    with contextlib.suppress(RuntimeError):  # a user id that this machine does not know has no home folder
        private.append(Path.home())
    return private


def shareable(path: str, private: Sequence[Path]) -> bool:
    """Return whether a folder contains none of these private folders, so that workers may read it."""
    place = _resolved(path)
    return not any(_resolved(str(folder)).is_relative_to(place) for folder in private)


def _resolved(path: str) -> Path:
    """Return the path without symbolic links and with one leading slash: Python treats `//home` and `/home` as
    different."""
    resolved = str(Path(path).resolve())
    return Path(f"/{resolved.lstrip('/')}")


def _installed(prefix: Path, private: Sequence[Path]) -> list[Path]:
    """Return the folders of a Python installation that may be shown: the whole folder, or only its known parts if it
    also holds private files."""
    if shareable(str(prefix), private):
        return [prefix]
    return [Path(part) for name in _OF_A_PREFIX for part in _without(str(prefix / name), private)]


def _hidden(private: Iterable[Path]) -> list[Path]:
    """Return the private folders without those system folders that every program needs."""
    return [folder for folder in private if str(_resolved(str(folder))) not in _LIBRARIES]


def _without(folder: str, private: Sequence[Path]) -> list[str]:
    """Return a folder if it contains nothing private; otherwise its entries that contain nothing private. Links are
    kept.

    A folder that is itself private has no such entries, unless it is one of `_ROOTS`: then its subfolders are shown,
    except those whose names begin with a dot.
    """
    if shareable(folder, private) or Path(folder).is_symlink():
        return [folder]
    is_private = any(_resolved(str(each)) == _resolved(folder) for each in private)
    if is_private and folder not in _ROOTS:
        return []
    try:
        with os.scandir(folder) as entries:
            inner = [e.path for e in entries if not is_private or (e.is_dir() and not e.name.startswith("."))]
    except OSError:
        return []
    return [part for path in sorted(inner) for part in _without(path, private)]


@lru_cache
def without_counters(folder: str = TOPOLOGY) -> tuple[str, ...]:
    """Return the files and folders below this folder that can be shown without any folder of COUNTERS.

    That is the folder itself if it contains none, at any depth.
    """
    try:
        with os.scandir(folder) as entries:
            inner = [(each.path, each.name, each.is_dir(follow_symlinks=False)) for each in entries]
    except OSError:
        return (folder,)
    parts = [
        part
        for path, name, is_folder in sorted(inner)
        if name not in COUNTERS
        for part in (without_counters(path) if is_folder else (path,))
    ]
    return (folder,) if parts == sorted(path for path, _, _ in inner) else tuple(parts)


def _found(form: str) -> Iterator[Path]:
    """Return the existing paths that match an absolute pattern."""
    return Path("/").glob(form.removeprefix("/"))


def _outermost(paths: set[str]) -> tuple[str, ...]:
    """Return the paths without those that lie inside another of them. A link does not contain what its target
    contains."""
    kept: list[str] = []
    for path in sorted(paths, key=lambda path: len(Path(path).parts)):
        if not any(Path(path).is_relative_to(outer) and not Path(outer).is_symlink() for outer in kept):
            kept.append(path)
    return tuple(kept)


def _hops(path: Path) -> list[Path]:
    """Return a path, the target of its link, the target of that link, and so on."""
    hops = [path]
    while path.is_symlink() and len(hops) < 40:
        path = path.parent / path.readlink()
        hops.append(path)
    return hops

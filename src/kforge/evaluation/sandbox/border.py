"""What a worker may access: the system and the interpreter to read, two private folders to write, a few devices."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
    "/sys/devices/system",
)  # fmt: skip
"""Programs, libraries, and the machine's topology (/sys/devices/system). From /etc only what loaders read, since the
rest may hold secrets."""

_ROOTS = ("/usr", "/usr/local", "/opt", "/nix/store")
"""System folders whose own files nothing needs: software is installed in their subfolders."""

_LIBRARIES = frozenset(
    f"{root}/{name}"
    for root in ("", "/usr", "/usr/local")
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "include", "share")
)
"""System folders that every program needs completely. A user who works in one of them has nothing private there."""

_OF_A_PREFIX = ("bin", "include", "lib", "lib64", "share", "pyvenv.cfg")
"""Parts of an interpreter's installation, for example of a virtual environment inside a project."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class WorkerFolders:
    """The two folders of one worker, the only ones it may write."""

    work: Path
    builds: Path

    @property
    def log(self) -> Path:
        """The file for its standard streams: beside its folder, where the worker cannot replace it."""
        return self.work.with_name(f"{self.work.name}.log")


@dataclass(frozen=True)
class Border:
    """The border of a sandbox: what all workers of a fork server may access besides their own folders."""

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
        """Return the border for an import path, a PATH, further folders to read and what a platform's driver needs.

        A folder on PATH that holds something private is not shown; a folder inside it that is on PATH itself is. Of a
        system folder that holds something private, the rest is shown. `private`: besides what is private to this
        process, which need not be the one that the user started.
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
        """Return the device nodes that exist now."""
        named = (node for form in self.devices for node in _found(form))
        return [*DEVICES, *sorted(str(node) for node in named if not node.is_dir())]


def is_text(path: str) -> bool:
    """Return whether a path can be sent to another process: its bytes are UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def private_folders() -> list[Path]:
    """Return what no candidate should see: kforge's working directory, the temporary folder, and home."""
    private = [Path.cwd(), Path(tempfile.gettempdir())]
    with contextlib.suppress(RuntimeError):  # a user whom this machine does not know has no home to hide
        private.append(Path.home())
    return private


def shareable(path: str, private: Sequence[Path]) -> bool:
    """Return whether showing a folder would show none of these private ones."""
    place = _resolved(path)
    return not any(_resolved(str(folder)).is_relative_to(place) for folder in private)


def _resolved(path: str) -> Path:
    """Return the folder without links and in one spelling: Python treats `//home` and `/home` as different paths."""
    resolved = str(Path(path).resolve())
    return Path(f"/{resolved.lstrip('/')}")


def _installed(prefix: Path, private: Sequence[Path]) -> list[Path]:
    """Return where an interpreter is installed; only its own folders there, where that is a private place as well."""
    if shareable(str(prefix), private):
        return [prefix]
    return [Path(part) for name in _OF_A_PREFIX for part in _without(str(prefix / name), private)]


def _hidden(private: Iterable[Path]) -> list[Path]:
    """Return the private folders, except those that hold what every program needs."""
    return [folder for folder in private if str(_resolved(str(folder))) not in _LIBRARIES]


def _without(folder: str, private: Sequence[Path]) -> list[str]:
    """Return a folder; or, if it holds something private, the rest of it. A link is only a link.

    A folder that is private itself has no rest, unless it is a root of installed software. Then its folders are shown,
    except those whose name begins with a dot.
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


def _found(form: str) -> Iterator[Path]:
    return Path("/").glob(form.removeprefix("/"))


def _outermost(paths: set[str]) -> tuple[str, ...]:
    """Return the paths without those that lie in another one; a link counts as itself, not as its target."""
    kept: list[str] = []
    for path in sorted(paths, key=lambda path: len(Path(path).parts)):
        if not any(Path(path).is_relative_to(outer) and not Path(outer).is_symlink() for outer in kept):
            kept.append(path)
    return tuple(kept)


def _hops(path: Path) -> list[Path]:
    """Return a link, its target, and so on to the end."""
    hops = [path]
    while path.is_symlink() and len(hops) < 40:
        path = path.parent / path.readlink()
        hops.append(path)
    return hops

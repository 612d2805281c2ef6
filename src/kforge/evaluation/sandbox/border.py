"""What a worker may reach: the system and the interpreter to read, two folders of its own to write, a few devices."""

from __future__ import annotations

import os
import sys
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
"""Programs, libraries and the machine's shape; of /etc only what loaders read, since the rest may hold secrets."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True)
class Place:
    """The two folders of one worker, the only ones it may write."""

    work: Path
    builds: Path

    @property
    def log(self) -> Path:
        """What it says on its standard streams: beside its folder, where it cannot be replaced by something else."""
        return self.work.with_name(f"{self.work.name}.log")


@dataclass(frozen=True)
class Border:
    """What all workers of a nursery may reach besides their own places."""

    readable: tuple[str, ...]
    devices: tuple[str, ...]

    @classmethod
    def around(cls, imports: str, tool_path: str, extra: Iterable[Path], nodes: Iterable[str]) -> Self:
        """The border for an import path, a PATH, further folders to read and what a platform's driver needs."""
        nodes = tuple(nodes)
        elsewhere = [form for form in nodes if form.startswith("/") and not form.startswith("/dev/")]
        files = [str(path) for form in elsewhere for path in _found(form)]
        entries = [*imports.split(os.pathsep), *tool_path.split(os.pathsep), *map(str, extra)]
        interpreter = [sys.prefix, sys.base_prefix, *(str(hop.parent) for hop in _hops(Path(sys.executable)))]
        # an accelerator's driver looks for its device in /sys
        wanted = [*SYSTEM, *(("/sys",) if nodes else ()), *files, *interpreter, *entries]
        wanted += [str(Path(path).resolve()) for path in (*interpreter, *entries)]
        present = {path for path in wanted if path != "/" and Path(path).is_absolute() and os.path.lexists(path)}
        return cls(_outermost(present), tuple(form for form in nodes if form not in elsewhere))

    def device_nodes(self) -> list[str]:
        """The nodes that are really there now."""
        named = (node for form in self.devices for node in _found(form))
        return [*DEVICES, *sorted(str(node) for node in named if not node.is_dir())]


def shareable(path: str, private: Sequence[Path]) -> bool:
    """Whether showing a folder would show none of these private ones."""
    place = Path(path).resolve()
    return not any(folder.resolve().is_relative_to(place) for folder in private)


def _found(form: str) -> Iterator[Path]:
    return Path("/").glob(form.removeprefix("/"))


def _outermost(paths: set[str]) -> tuple[str, ...]:
    """Without those that lie in another one; a link counts as itself, not as what it points to."""
    kept: list[str] = []
    for path in sorted(paths, key=lambda path: len(Path(path).parts)):
        if not any(Path(path).is_relative_to(outer) and not Path(outer).is_symlink() for outer in kept):
            kept.append(path)
    return tuple(kept)


def _hops(path: Path) -> list[Path]:
    """A link, what it points to, and so on to the end."""
    hops = [path]
    while path.is_symlink() and len(hops) < 40:
        path = path.parent / path.readlink()
        hops.append(path)
    return hops

"""Settings of builds: the cache folder, the time limit of a compiler, and flags for every build."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Configuration:
    """The settings of builds in this process."""

    cache: Path | None = None
    """The cache folder. None means a folder in the user's home, which is looked up at the first build and not at
    import."""
    deadline: float = 120.0
    """Seconds after which a compiler is killed."""
    flags: tuple[str, ...] = ()
    """Compiler flags that are added to every build, for example those of a sanitizer."""

    @property
    def cache_folder(self) -> Path:
        return self.cache if self.cache is not None else Path.home() / ".cache" / "kforge" / "inline"


_current = Configuration()


def current() -> Configuration:
    """Return the present settings."""
    return _current


def configure(
    *, cache: Path | None = None, deadline: float | None = None, flags: tuple[str, ...] | None = None
) -> None:
    """Change the cache folder, the seconds that a compiler may take, or the flags of every build. Settings that are not
    passed stay unchanged."""
    global _current
    if cache is not None:
        _current = replace(_current, cache=cache)
    if deadline is not None:
        _current = replace(_current, deadline=deadline)
    if flags is not None:
        _current = replace(_current, flags=flags)

"""Settings of builds: the cache folder, the compiler's deadline, and flags for every build."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Configuration:
    cache: Path | None = None
    """None until it is set: the home folder is looked up at the first build, not at import."""
    deadline: float = 120.0
    """Seconds after which a compiler is killed."""
    flags: tuple[str, ...] = ()
    """Added to every build: a sanitizer, say."""

    @property
    def cache_folder(self) -> Path:
        return self.cache if self.cache is not None else Path.home() / ".cache" / "kforge" / "inline"


_current = Configuration()


def current() -> Configuration:
    return _current


def configure(
    *, cache: Path | None = None, deadline: float | None = None, flags: tuple[str, ...] | None = None
) -> None:
    """Change the cache folder, the seconds that a compiler may take, or its flags. Arguments that are not given stay as
    they are."""
    global _current
    if cache is not None:
        _current = replace(_current, cache=cache)
    if deadline is not None:
        _current = replace(_current, deadline=deadline)
    if flags is not None:
        _current = replace(_current, flags=flags)

"""Where builds are kept, how long one may take, and what every one of them gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Configuration:
    cache: Path | None = None
    """None until somebody chooses: the home folder is looked up at the first build, not at import."""
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
    """Change where builds are kept, the seconds a compiler may take, or its flags; what is not given stays."""
    global _current
    if cache is not None:
        _current = replace(_current, cache=cache)
    if deadline is not None:
        _current = replace(_current, deadline=deadline)
    if flags is not None:
        _current = replace(_current, flags=flags)

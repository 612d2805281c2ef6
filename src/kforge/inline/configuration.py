"""Where builds are kept and how long one may take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Configuration:
    cache: Path | None = None
    """None until somebody chooses: the home folder is looked up at the first build, not at import."""
    deadline: float = 120.0
    """Seconds after which a compiler is killed."""

    @property
    def cache_folder(self) -> Path:
        return self.cache if self.cache is not None else Path.home() / ".cache" / "kforge" / "inline"


_current = Configuration()


def current() -> Configuration:
    return _current


def configure(*, cache: Path | None = None, deadline: float | None = None) -> None:
    """Change where builds are kept, or the seconds a compiler may take; what is not given stays as it is."""
    global _current
    if cache is not None:
        _current = replace(_current, cache=cache)
    if deadline is not None:
        _current = replace(_current, deadline=deadline)

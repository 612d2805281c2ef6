"""Reads the environment and the config files. No other module does: everything is resolved once, into one type.

The environment wins over `config.toml`, which wins over the default. A relative path is taken from the working
directory, in `config.toml` from the folder that holds it. Keys live in the environment or in a key file of `NAME=VALUE`
lines, and never show in a `repr`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kforge import reading
from kforge.errors import InputError
from kforge.records import EvaluationLimits
from kforge.store import Key, index_url
from kforge.visible import command

FIELDS: dict[str, Any] = {
    "model": str,
    "runs": str,
    "database": str,
    "platform_dirs": list,
    "timing": (int, float),
    "timing_cap": (int, float),
    "memory": str,
}
"""The keys that `config.toml` may have, with their types."""
WANTED = {str: "a string", list: "a list of strings", (int, float): "a number"}
"""The types in words, for messages."""
LONGEST_TIMING = 600.0
LARGEST_MEMORY = 10**6 * 1000**4
"""Largest memory limit in bytes. No machine has as much, and all numbers computed from it fit into 64 bits."""

HANDED_DOWN = re.compile(
    r"PATH|HOME|TMPDIR|LANG|LC_(?:ALL|COLLATE|CTYPE|MESSAGES|NUMERIC|TIME)|XDG_CACHE_HOME"
    r"|CC|CXX|CPATH|LIBRARY_PATH|LD_LIBRARY_PATH"
    r"|OMP_NUM_THREADS|\w+_VISIBLE_DEVICES"
)
"""The variables that compilers and runtimes need. No other variable is passed on, above all no key."""


class Keys(Mapping[str, str]):
    """Providers' keys by variable name. Only their names are printed."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Keys({', '.join(sorted(self._values))})"


USER_PLATFORMS = "platforms"
"""Name of the folder of the user's own platforms."""


@dataclass(frozen=True)
class Settings:
    """The settings of this user and this machine, before any option of a command."""

    cache: Path
    config: Path
    state: Path
    """The folder of the key that signs this user's runs and receipts."""
    runs: Path
    """The root of run folders."""
    model: str
    """The default model; empty when none is configured."""
    platform_dirs: tuple[Path, ...]
    """Folders of further platforms, besides those that ship with kforge or come as packages."""
    database: str = field(repr=False)
    """SQLAlchemy URL of the run index; it may hold a password."""
    limits: EvaluationLimits
    """Limits of time and memory of one evaluation."""
    keys: Keys
    child_environment: Mapping[str, str] = field(repr=False)
    """The environment variables that child processes may see."""
    key_file: Path

    @property
    def private(self) -> tuple[Path, ...]:
        """Paths that no candidate may see: runs, programs made by others, signing keys and providers' keys."""
        return self.cache, self.config, self.state, self.runs, self.key_file, self.key_file.parent

    @property
    def user_platforms(self) -> Path:
        """The folder of the user's own platforms, which is among `platform_dirs` where it exists."""
        return self.config / USER_PLATFORMS

    @property
    def signing_key(self) -> Key:
        return Key(self.state)


def load(environ: Mapping[str, str] | None = None, *, memory: str = "") -> Settings:
    """Return the settings by this environment, by default the process's. Raises InputError for bad values.

    `memory`: the value of the command's option `--memory`.
    """
    env = os.environ if environ is None else environ
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    config = _base(env, "XDG_CONFIG_HOME", home / ".config") / "kforge"
    said = _read_config(config / "config.toml")
    here = _working_directory()
    runs = _path(env.get("KFORGE_RUNS"), home, here) or _path(said.get("runs"), home, config) or here / "kforge-runs"
    key_file = _key_file(env, home, config)
    return Settings(
        cache=_base(env, "XDG_CACHE_HOME", home / ".cache") / "kforge",
        config=config,
        state=_base(env, "XDG_STATE_HOME", home / ".local" / "state") / "kforge",
        runs=runs,
        model=env.get("KFORGE_MODEL") or said.get("model", ""),
        platform_dirs=_platform_dirs(env, said, home, config),
        database=env.get("KFORGE_DATABASE") or said.get("database") or index_url(runs),
        limits=_limits(memory, env, said, config / "config.toml"),
        keys=_keys(env, key_file),
        child_environment={name: value for name, value in env.items() if HANDED_DOWN.fullmatch(name)},
        key_file=key_file,
    )


def _limits(memory: str, env: Mapping[str, str], said: Mapping[str, Any], file: Path) -> EvaluationLimits:
    usual = EvaluationLimits()
    given = EvaluationLimits(
        timing_seconds=_seconds("timing", usual.timing_seconds, env, said, file),
        memory=_memory(memory, env, said, file),
    )
    return given.model_copy(update={"timing_cap": _seconds("timing_cap", given.longest_timing, env, said, file)})


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise InputError("the working directory does not exist any more; change to another one") from None


def _base(env: Mapping[str, str], name: str, default: Path) -> Path:
    value = env.get(name)
    if not value:
        return default
    if not Path(value).is_absolute():
        raise InputError(f"{name} must be an absolute path, not '{value}'")
    return Path(value)


def _path(value: str | None, home: Path, start: Path) -> Path | None:
    """Return a path as a user writes it; None for an empty text."""
    if not value:
        return None
    if value == "~" or value.startswith("~/"):
        return home / value[2:]
    return start / value


def _platform_dirs(env: Mapping[str, str], said: Mapping[str, Any], home: Path, config: Path) -> tuple[Path, ...]:
    named = [_path(part, home, _working_directory()) for part in env.get("KFORGE_PLATFORM_PATH", "").split(os.pathsep)]
    named += [_path(part, home, config) for part in said.get("platform_dirs", [])]
    own = config / USER_PLATFORMS
    return (*((own,) if own.is_dir() else ()), *dict.fromkeys(path for path in named if path is not None))


def _seconds(name: str, default: float, env: Mapping[str, str], said: Mapping[str, Any], file: Path) -> float:
    variable = f"KFORGE_{name.upper()}"
    value = env.get(variable) or said.get(name, min(default, LONGEST_TIMING))
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= LONGEST_TIMING:
        place = variable if env.get(variable) else f"{file}: field '{name}'"
        raise InputError(f"{place} must be more than 0 and at most {LONGEST_TIMING:g} seconds, not '{value}'")
    return seconds


def _memory(option: str, env: Mapping[str, str], said: Mapping[str, Any], file: Path) -> int:
    """Return the memory limit in bytes; 0 if none is set. The option wins over the environment, which wins over the
    file. Raises InputError for a text that is not a size."""
    variable = "KFORGE_MEMORY"
    places = {"--memory": option, variable: env.get(variable), f"{file}: field 'memory'": said.get("memory")}
    for place, text in places.items():
        if text:
            size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])(i?)B?", text.strip(), re.IGNORECASE)
            if size is None:
                raise InputError(f"{place} must be a size such as 24GB or 512MB, not '{text}'")
            power = "KMGT".index(size[2].upper()) + 1
            count = float(size[1]) * (1024 if size[3] else 1000) ** power
            if not 1 <= count <= LARGEST_MEMORY:
                most = f"{LARGEST_MEMORY // 1000**4}TB"
                raise InputError(f"{place} must be more than 0 and at most {most}, not '{text[:60]}'")
            return int(count)
    return 0


# --- config.toml ------------------------------------------------------------------------------------------


def _read_config(path: Path) -> dict[str, Any]:
    text = _read(path)
    if text is None:
        return {}
    try:
        said = reading.toml(text)
    except ValueError as error:
        raise InputError(f"{path}: not valid TOML: {error}") from error
    for name, value in said.items():
        if name not in FIELDS:
            raise InputError(f"{path}: unknown field '{name}'; the fields are {', '.join(FIELDS)}")
        if not isinstance(value, FIELDS[name]):
            raise InputError(f"{path}: field '{name}' must be {WANTED[FIELDS[name]]}")
        if isinstance(value, list) and not all(isinstance(item, str) for item in value):
            raise InputError(f"{path}: field '{name}' must be a list of strings")
        if any("\0" in item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)):
            raise InputError(f"{path}: field '{name}' holds a zero byte, which no name can have")
    return said


def _read(path: Path) -> str | None:
    try:
        return reading.text(path, most=reading.LARGEST_MANIFEST)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {reading.reason(error)}") from error


# --- keys -------------------------------------------------------------------------------------------------


def _key_file(env: Mapping[str, str], home: Path, config: Path) -> Path:
    named = _path(env.get("KFORGE_KEY_FILE"), home, _working_directory())
    if named is not None and not named.is_file():
        raise InputError(f"KFORGE_KEY_FILE names {named}, which is not a file")
    return named or config / "keys.env"


def _keys(env: Mapping[str, str], file: Path) -> Keys:
    keys = _read_key_file(file)
    keys.update({name: value for name, value in env.items() if name.endswith("_API_KEY") and value})
    return Keys(keys)


def _read_key_file(path: Path) -> dict[str, str]:
    """Return keys from lines `NAME=VALUE`, as a shell would read them; empty if there is no such file.

    Raises InputError if others may read the file, or for another line. No message quotes a line: it may hold a key.
    """
    text = _read(path)
    if text is None:
        return {}
    if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        raise InputError(f"the key file {path} is open to others (mode {mode:03o}); run: {command('chmod', 600, path)}")
    keys = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"\s*(?:export\s+)?(\w+_API_KEY)\s*=\s*(['\"]?)(\S+?)\2\s*", line)
        if match is None:
            raise InputError(f"the key file {path}, line {number}: expected SOME_API_KEY=value")
        keys[match[1]] = match[3]
    return keys

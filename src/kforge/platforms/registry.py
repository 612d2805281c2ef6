"""Finds platforms: folders that ship with kforge, folders that the user names, and folders of installed packages.

All of them are loaded by `load_folder`. Only manifests and examples are read; an adapter is imported when it is first
used.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from kforge import reading
from kforge.errors import PlatformError
from kforge.platforms.adapter import Adapter
from kforge.platforms.manifest import MANIFEST_FILE, Manifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

ENTRY_POINT_GROUP = "kforge.platforms"
_BUILT_IN = Path(__file__).parent
_ADAPTER_FILE = "adapter.py"
_PRELOAD_FILE = "preload.py"
_LANGUAGE_FILE = "language.py"


OPERATORS_FILE = "operators.txt"
"""Name of the file in each folder of `examples/` that lists the operators for which that example is shown."""
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Example:
    """The platform's single-shot example for prompts: a small module, and a version of it with a kernel."""

    reference: str
    kernel: str


@dataclass(frozen=True)
class Platform:
    """One platform: its manifest, its single-shot example and its adapter."""

    manifest: Manifest
    folder: Path
    example: Example

    @property
    def name(self) -> str:
        return self.manifest.name

    def example_for(self, source: str) -> Example:
        """Return the single-shot example for a problem's source: the one in `examples/` that shares the most operators
        with the source, or the platform's own if none shares any. Raises PlatformError if an example cannot be read."""
        operators = {folder: _operators(folder) for folder in sorted((self.folder / "examples").glob("*/"))}
        named = set(_NAME.findall(source))
        best = max(operators, key=lambda folder: len(named & operators[folder]), default=None)
        if best is None or not named & operators[best]:
            return self.example
        return Example(_example(best, "reference.py"), _example(best, "kernel.py"))

    @cached_property
    def adapter(self) -> Adapter:
        """The platform's own adapter if its folder has one, otherwise the default one. Raises PlatformError if it
        cannot be loaded."""
        file = self.folder / _ADAPTER_FILE
        return (_adapter_class(file) if file.is_file() else Adapter)(self.manifest)

    def language_class(self) -> type | None:
        """Return the class `Language` of the file `language.py` in the platform's folder. None if there is no such
        file.

        Raises PlatformError if the file cannot be loaded, or defines no such class.
        """
        file = self.folder / _LANGUAGE_FILE
        if not file.is_file():
            return None
        defined = getattr(_module(file), "Language", None)
        if not isinstance(defined, type):
            raise PlatformError(f"{file}: must define a class Language")
        return defined


@dataclass(frozen=True)
class BrokenPlatform:
    """A platform that was found but cannot be loaded."""

    name: str
    origin: str
    """The folder or entry point where it was found."""
    reason: str


def load_folder(folder: Path) -> Platform:
    """Return the platform in this folder. Raises PlatformError, with one line."""
    folder = folder.resolve()
    manifest = read_manifest(folder / MANIFEST_FILE)
    own = folder / "example"
    return Platform(manifest, folder, Example(_example(own, "reference.py"), _example(own, "kernel.py")))


def preload(folder: Path) -> None:
    """Call the function `preload` of the file `preload.py` in a platform's folder, if there is one. Raises what that
    function raises.

    It runs in the process from which workers are forked, and imports and computes what every worker will need. It must
    not start threads or use a device: a process that has called `cuInit`, for example, cannot fork a child that uses
    CUDA. That is why it is no method of the adapter, which may look for its device when it is imported.
    """
    file = folder / _PRELOAD_FILE
    if file.is_file():
        _module(file).preload()


def available(extra: Sequence[Path] = ()) -> list[Platform | BrokenPlatform]:
    """Return every platform, sorted by name. A broken platform is listed with its reason, and does not affect the
    others.

    Each folder of `extra` is a platform or contains platforms. Raises PlatformError if one of these folders does not
    exist.
    """
    found: list[Platform | BrokenPlatform] = []
    folders: dict[str, Path] = {}
    for place in dict.fromkeys(_places(extra)):
        platform = place if isinstance(place, BrokenPlatform) else _load_or_say_why(place)
        if isinstance(platform, Platform):
            first = folders.setdefault(platform.name, platform.folder)
            if first != platform.folder:
                reason = f"two platforms have the name '{platform.name}': {first} and {platform.folder}; rename one"
                platform = BrokenPlatform(platform.name, str(platform.folder), reason)
        found.append(platform)
    return sorted(found, key=lambda platform: platform.name)


def find(name: str, extra: Sequence[Path] = ()) -> Platform:
    """Return the platform of this name. Raises PlatformError if it is unknown or broken, or if two platforms have the
    name."""
    everything = available(extra)
    named = [platform for platform in everything if platform.name == name]
    for platform in named:
        if isinstance(platform, BrokenPlatform):
            raise PlatformError(platform.reason)
    for platform in named:
        if isinstance(platform, Platform):
            return platform
    names = ", ".join(platform.name for platform in everything if isinstance(platform, Platform))
    raise PlatformError(f"no platform named '{name}'; there are: {names}")


def _load_or_say_why(folder: Path) -> Platform | BrokenPlatform:
    try:
        return load_folder(folder)
    except PlatformError as error:
        return BrokenPlatform(folder.name, str(folder), str(error))


def at_hand(extra: Sequence[Path] = (), suits: Callable[[Platform], bool] | None = None) -> Platform:
    """Return the platform to use if the user names none. Raises PlatformError if no platform is available.

    `suits` says whether the smith can write for a platform; such platforms come first. Next come platforms that are not
    emulated here, then those with the highest preference. With `suits`, several equally ranked platforms may share the
    device of the best one: then the platform with the highest `builtin_speedup` is chosen.
    """
    usable = [p for p in available(extra) if isinstance(p, Platform) and p.adapter.probe() is None]
    if not usable:
        raise PlatformError("no platform is available here; `kforge platforms` says why")

    ranks = {
        platform.name: (suits is None or suits(platform), platform.adapter.emulated() is None) for platform in usable
    }
    best = max(usable, key=lambda platform: (ranks[platform.name], platform.manifest.preference))
    if suits is None:
        return best
    alike = [p for p in usable if ranks[p.name] == ranks[best.name] and p.manifest.device == best.manifest.device]
    return max(alike, key=lambda platform: (platform.manifest.builtin_speedup, platform.manifest.preference))


def _places(extra: Sequence[Path]) -> Iterator[Path | BrokenPlatform]:
    """Yield the folders that have a manifest, and a BrokenPlatform for each entry point that leads to none.
    Raises PlatformError for a folder in `extra` that does not exist."""
    for root in (_BUILT_IN, *extra):
        if not root.is_dir():
            raise PlatformError(f"no such platform folder: {root}")
        root = root.resolve()
        folders = [root] if (root / MANIFEST_FILE).is_file() else sorted(root.iterdir())
        yield from (folder for folder in folders if (folder / MANIFEST_FILE).is_file())
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        yield _package_folder(entry_point)


def _package_folder(entry_point: importlib.metadata.EntryPoint) -> Path | BrokenPlatform:
    """Return the folder of the module that an entry point names. The module itself is not imported."""
    try:
        spec = importlib.util.find_spec(entry_point.module)
    except Exception as error:  # importing the parents of a dotted name may raise anything
        return _broken(entry_point, f"importing it raised {type(error).__name__}")
    if spec is None:
        return _broken(entry_point, "there is no such module")
    places = [*(spec.submodule_search_locations or ()), *([str(Path(spec.origin).parent)] if spec.origin else ())]
    for folder in map(Path, places):
        if (folder / MANIFEST_FILE).is_file():
            return folder.resolve()
    return _broken(entry_point, f"there is no {MANIFEST_FILE} beside that module")


def _broken(entry_point: importlib.metadata.EntryPoint, problem: str) -> BrokenPlatform:
    origin = f"entry point {entry_point.name} = {entry_point.value}"
    return BrokenPlatform(entry_point.name, origin, f"{origin}: {problem}")


def _operators(folder: Path) -> set[str]:
    """Return the operators for which the example in this folder is shown. Raises PlatformError if their file cannot be
    read."""
    return set(_example(folder, OPERATORS_FILE).split())


def _example(folder: Path, name: str) -> str:
    file = folder / name
    try:
        return reading.text(file, most=reading.LARGEST_MANIFEST)
    except (OSError, UnicodeDecodeError) as error:
        raise PlatformError(f"{file}: the single-shot example cannot be read: {reading.reason(error)}") from error


def _adapter_class(file: Path) -> type[Adapter]:
    """Return the class `Adapter` that a platform's own file defines. Raises PlatformError if it defines none."""
    defined = getattr(_module(file), "Adapter", None)
    if not (isinstance(defined, type) and issubclass(defined, Adapter) and defined is not Adapter):
        raise PlatformError(f"{file}: must define a class Adapter derived from kforge.platforms.Adapter")
    return defined


def _module(file: Path) -> ModuleType:
    """Import a platform's own file. Raises PlatformError if it cannot be loaded."""
    # Loaded by path, under a unique name: the folder need not be a package, and several platforms have an adapter.py.
    name = f"kforge_platform_{sha256(os.fsencode(file)).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        reason = " ".join(str(error).split())
        raise PlatformError(f"{file}: cannot be loaded: {type(error).__name__}: {reason}") from error
    return module

"""Reads suites in kforge's own form: a folder of problem files, with a `suite.toml` or without, or one problem file.

<suite>/
├── suite.toml            optional: workloads, weights, and labels that are expected
└── <family>/<name>.py    problem files; the first folder is the family

The constants in a problem file are the default workload. `suite.toml` says which constants the other workloads set.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import ProblemError
from kforge.problems.discovery import survey
from kforge.problems.manifest import MANIFEST, Workloads, read_manifest
from kforge.problems.readers.protocol import TIMED, Entry, Variant
from kforge.problems.source import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.problems.manifest import SuiteManifest
    from kforge.records import Problem


class OwnReader:
    """Reads a folder of problem files, or a single problem file. Files, and folders with a `suite.toml`, are always
    read by this reader. It also reads folders that no reader recognizes."""

    name = "kforge"

    def recognizes(self, folder: Path) -> bool:
        return folder.is_file() or (folder / MANIFEST).exists()

    def read(self, folder: Path) -> Iterator[Entry]:
        manifest = read_manifest(folder)
        found = survey(folder)
        names = {_name(folder, path): path for path in (*found.problems, *found.unreadable)}
        if manifest and (strangers := sorted(set(manifest.problems) - set(names))):
            raise ProblemError(f"{folder / MANIFEST}: there is no problem {strangers[0]!r}")
        for name, path in names.items():
            said = (manifest and manifest.problems.get(name)) or Workloads()
            yield Entry(name=name, variants=tuple(_variants(name, path, manifest, said)), labels=said.labels)


def _variants(name: str, path: Path, manifest: SuiteManifest | None, said: Workloads) -> Iterator[Variant]:
    if manifest is None:
        yield Variant(name="", make=partial(load, path))
        return
    for workload in manifest.workloads:
        is_default = workload == manifest.default
        constants = said.constants.get(workload, {} if is_default else None)
        make = partial(_load, name, path, workload, constants)
        yield Variant(name=workload, make=make, group=TIMED if is_default else workload)


def _load(name: str, path: Path, workload: str, constants: dict[str, object] | None) -> Problem:
    """Return the problem at a workload. Raises ProblemError if `suite.toml` does not have the workload for it."""
    if constants is None:
        load(path)  # an error in the file itself is raised first
        raise ProblemError(f"{name}: {MANIFEST} has no workload {workload!r} for it")
    return load(path, [f"{constant}={value!r}" for constant, value in constants.items()])


def _name(folder: Path, path: Path) -> str:
    """Return the name of a problem file: its path in the suite without the suffix."""
    inside = path.relative_to(folder) if path != folder else Path(path.name)
    stem = inside.with_suffix("")
    # `load` names it in the same way, except if a file beside the folder has that name
    is_folder = stem.name == "problem" and stem.parent.name and not path.parent.with_suffix(".py").exists()
    return (stem.parent if is_folder else stem).as_posix()

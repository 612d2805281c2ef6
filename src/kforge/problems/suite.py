"""A suite: a folder of problem files, grouped by family, with sizes to choose from (workloads). Nothing is executed.

<suite>/
├── suite.toml            optional: workloads, and labels that are expected
└── <family>/<name>.py    problem files; the first folder is the family

The constants in a problem file are the default workload. `suite.toml` says which constants the other workloads set:

    name = "core"
    default = "small"
    workloads = ["small", "large"]

    [problems."norms/unit_rows"]
    large = { ROWS = 65536, FEATURES = 2048 }
    labels.precision_blind = "why that is all right"
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, model_validator

from kforge import reading
from kforge.errors import ProblemError
from kforge.problems.discovery import survey
from kforge.problems.source import load
from kforge.records import Problem, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

SHIPPED = Path(__file__).with_name("suites")
"""The folder with the suites that come with kforge. Their problems are data and are never imported."""


LONGEST_NAME = 255
"""Most bytes of a folder's name on common file systems."""


class Task(Record):
    """One problem file of a suite: the problem, or the reason why it cannot be used."""

    name: str
    """`family/name`, unique in its suite."""
    family: str
    problem: Problem | None = None
    failure: str | None = None
    """Why the file cannot be used as a problem; None if it can."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Task:
        if (self.problem is None) == (self.failure is None):
            raise ValueError("a task has a problem or the reason why there is none")
        if not all(part.strip(".") for part in self.name.split("/")):
            raise ValueError(f"{self.name!r} cannot name a folder")
        if "\0" in self.name or any(len(os.fsencode(part)) > LONGEST_NAME for part in self.name.split("/")):
            raise ValueError("its name is too long for a folder, or holds a zero byte")
        return self


class Workloads(Record):
    """What `suite.toml` says about one problem."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the problem lint that are expected for this problem, with the reason."""
    constants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """For each workload, the values that it gives to constants of the problem file."""


class SuiteManifest(Record):
    """The contents of `suite.toml`."""

    name: str
    default: str
    workloads: tuple[str, ...] = Field(min_length=1)
    problems: dict[str, Workloads] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _only_known_workloads(self) -> SuiteManifest:
        if self.default not in self.workloads:
            raise ValueError(f"the default workload {self.default!r} is not among its workloads")
        for name, said in self.problems.items():
            if unknown := sorted(set(said.constants) - set(self.workloads)):
                raise ValueError(f"problem {name!r} has a workload {unknown[0]!r} that the suite does not have")
        return self


class Suite:
    """A folder of problem files, with its manifest if it has one."""

    def __init__(self, folder: Path, manifest: SuiteManifest | None) -> None:
        self.folder = folder
        self.manifest = manifest
        self.name = manifest.name if manifest else (folder.resolve().name or "problems")

    def tasks(self, workload: str = "", only: str = "") -> list[Task]:
        """Return the problems whose names match the patterns in `only`, at a workload. By default the files' own
        constants are used.

        A file that cannot be read is a task with a failure. Raises ProblemError if there is no such workload, if
        nothing matches, or if the folder contains no problem.
        """
        found = survey(self.folder)
        reasons = {path: str(error) for path, error in found.unreadable.items()}
        names = {self._name(path): path for path in (*found.problems, *reasons)}
        self._check(workload, names)
        chosen = [name for name in names if not only or _matches(name, only)]
        if not chosen:
            raise ProblemError(
                f"suite {self.name}: no problem matches {only!r}; the first of {len(names)} is {next(iter(names))}"
            )
        return [self._task(name, names[name], workload, reasons.get(names[name])) for name in chosen]

    def expected_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of the problem lint that are expected for this problem, with the reason."""
        return self._said(name).labels

    def _name(self, path: Path) -> str:
        """Return the name of a problem file: its path in the suite without the suffix."""
        inside = path.relative_to(self.folder) if path != self.folder else Path(path.name)
        stem = inside.with_suffix("")
        # as `load` names it, unless a file beside the folder has that name
        is_folder = stem.name == "problem" and stem.parent.name and not path.parent.with_suffix(".py").exists()
        return (stem.parent if is_folder else stem).as_posix()

    def _task(self, name: str, path: Path, workload: str, reason: str | None) -> Task:
        family = name.partition("/")[0] if "/" in name else ""
        try:
            if reason is None:
                return Task(name=name, family=family, problem=load(path, self._overrides(name, workload)))
        except ProblemError as error:
            reason = str(error)
        return Task(name=name, family=family, failure=reason)

    def _overrides(self, name: str, workload: str) -> list[str]:
        """Return the `NAME=VALUE` of a workload for one problem. Raises ProblemError if `suite.toml` does not have
        them."""
        constants = self._said(name).constants
        if workload not in constants and self.manifest and workload not in ("", self.manifest.default):
            raise ProblemError(f"{name}: suite.toml has no workload {workload!r} for it")
        return [f"{constant}={value!r}" for constant, value in constants.get(workload, {}).items()]

    def _said(self, name: str) -> Workloads:
        return (self.manifest and self.manifest.problems.get(name)) or Workloads()

    def _check(self, workload: str, names: Mapping[str, Path]) -> None:
        """Raise ProblemError for an unknown workload, and for a problem in `suite.toml` that does not exist."""
        if self.manifest is None:
            if workload:
                raise ProblemError(f"{self.folder}: has no suite.toml, so there is no workload {workload!r}")
            return
        if workload and workload not in self.manifest.workloads:
            raise ProblemError(
                f"suite {self.name}: no workload {workload!r}; there are: {', '.join(self.manifest.workloads)}"
            )
        if strangers := sorted(set(self.manifest.problems) - set(names)):
            raise ProblemError(f"{self.folder / 'suite.toml'}: there is no problem {strangers[0]!r}")


def shipped() -> list[str]:
    """Return the names of the suites that come with kforge."""
    return sorted(manifest.parent.name for manifest in SHIPPED.glob("*/suite.toml"))


def open_suite(name: str) -> Suite:
    """Return the suite in a folder, of one problem file, or with a shipped name. Raises ProblemError if there is no
    such suite, or if its suite.toml is wrong."""
    if name in shipped() and not Path(name).exists():
        folder = SHIPPED / name
    elif Path(name).exists():
        folder = Path(name)
    else:
        raise ProblemError(
            f"{name}: no such file or directory, and no suite of this name; there are: {', '.join(shipped())}"
        )
    toml = folder / "suite.toml"
    return Suite(folder, _read_manifest(toml) if folder.is_dir() and os.path.lexists(toml) else None)


def _matches(name: str, pattern: str) -> bool:
    """Return whether a name matches one of the patterns, which are separated by commas: a shell pattern, or a part of
    the name."""
    return any(fnmatchcase(name, each) or each in name for each in pattern.split(",") if each)


def _read_manifest(path: Path) -> SuiteManifest:
    try:
        said = reading.toml(_manifest_text(path))
        for name, about in said.get("problems", {}).items():
            labels = about.pop("labels", {})
            said["problems"][name] = {"labels": labels, "constants": about}
        return SuiteManifest.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ProblemError(f"{path}: {where + ': ' if where else ''}{' '.join(first['msg'].split())}") from error
    except (AttributeError, TypeError):
        raise ProblemError(f"{path}: 'problems' must hold a table for each problem") from None
    except ValueError as error:
        raise ProblemError(f"{path}: is not valid TOML: {error}") from error


def _manifest_text(path: Path) -> str:
    try:
        return reading.text(path, most=reading.LARGEST_MANIFEST)
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path}: cannot be read: {reading.reason(error)}") from error

"""A suite: problems with their workloads, from a folder of any format that a reader knows. Nothing is executed."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, model_validator

from kforge.errors import ProblemError
from kforge.problems.choice import ProblemChoice
from kforge.problems.manifest import MANIFEST, Weights, read_manifest, read_weights
from kforge.problems.readers import TIMED, find_reader, reason_of
from kforge.records import Problem, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.problems.readers import Entry, Variant
    from kforge.problems.readers.registry import Found

SHIPPED = Path(__file__).with_name("suites")
"""The folder with the suites that come with kforge. Their problems are data and are never imported."""
LONGEST_NAME = 255
"""Most bytes of a folder's name on common file systems."""
LONGEST_READABLE = 80
"""Most characters that are kept of a name that cannot name a folder."""
ALL = "all"
"""The name that stands for all workloads."""


class Task(Record):
    """One problem of a suite at one workload: the problem, or the reason why it cannot be used."""

    name: str
    """`family/name`, followed by the workload if several workloads of the problem are chosen. Unique in its suite."""
    family: str
    problem: Problem | None = None
    failure: str | None = None
    """The reason why the problem cannot be used; None if it can."""
    workload: str = ""
    """Name of the workload. Empty if the problem has only one, or for a suite of an earlier version."""
    group: str = ""
    """Name of the problem of which this is one of several workloads; empty if it is the only one."""
    weight: float = Field(default=1.0, gt=0)
    """How often the workload is served, relative to the others of its group."""
    notes: tuple[str, ...] = ()
    """Facts that a reader of the result must know, such as the suite's own tolerance."""
    reference: str = ""
    """Source of a reference implementation from another accelerator; empty if the problem comes without one."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Task:
        if (self.problem is None) == (self.failure is None):
            raise ValueError("a task must have either a problem or the reason (failure) why it has none")
        if not all(part.strip(".") for part in self.name.split("/")):
            raise ValueError(f"{self.name!r} cannot name a folder")
        if "\0" in self.name or any(len(os.fsencode(part)) > LONGEST_NAME for part in self.name.split("/")):
            raise ValueError("the task's name is too long for a folder, or holds a zero byte")
        return self


class Suite:
    """A suite: the problems of a folder, read by the reader of its format and narrowed by a choice."""

    def __init__(
        self, folder: Path, found: Found, choice: ProblemChoice | None = None, weights: Weights | None = None
    ) -> None:
        """`weights` replace those in the folder's `suite.toml`. Raises ProblemError if the `suite.toml` is wrong."""
        self.folder = folder
        self.reader = found.reader
        self._reader_remarks = found.remarks
        self.choice = choice or ProblemChoice()
        manifest = read_manifest(folder)
        self.name = manifest.name if manifest else (folder.resolve().name or "problems")
        self.weights: Weights = weights or (manifest.weights if manifest else {})

    @cached_property
    def entries(self) -> list[Entry]:
        """All problems of the suite. Raises ProblemError if it has no problems, or if two have the same name."""
        try:
            found = list(self.reader.read(self.folder))
        except ProblemError:
            raise
        except OSError as error:
            raise ProblemError(f"{self.folder}: cannot be read: {error.strerror}") from None
        except Exception as error:  # a bug in a package's reader, or fields that no reader expects
            raise ProblemError(reason_of(error, str(self.folder))) from error
        if not found:
            raise ProblemError(f"{self.folder}: contains no problem in the format {self.reader.name}")
        name, count = Counter(entry.name for entry in found).most_common(1)[0]
        if count > 1:
            raise ProblemError(f"{self.folder}: {count} problems have the name {name!r}")
        return found

    @property
    def remarks(self) -> list[str]:
        """One line for each kind of problems that is left out because kforge does not judge it, and for each reader of
        another package that cannot be used."""
        wanted = self.choice.wanted(self.entries)
        reasons = Counter(entry.refused for entry in wanted if entry.refused is not None)
        left_out = [f"left out {count} of {len(wanted)} problems: {reason}" for reason, count in reasons.items()]
        return [*self._reader_remarks, *left_out]

    def tasks(self, workload: str = "", only: str = "") -> list[Task]:
        """Return the chosen problems whose names match the patterns in `only`, each at its workloads.

        `workload` names workloads or groups of them, separated by commas; `all` stands for all. By default, a problem
        with weights has the workloads that have a weight, and a problem without weights has those that the suite itself
        times.

        A problem that cannot be read is a task with a failure. Raises ProblemError if there is no such workload, if
        nothing matches, if a weight names no workload, or if the folder contains no problem.
        """
        self._check_workload(workload)
        self._check_weights()
        chosen = self.choice.of(self.entries, self.name, only)
        return [task for entry in chosen for task in self._tasks(entry, workload)]

    def expected_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of the problem lint that are expected for this problem, with the reason."""
        return next((entry.labels for entry in self.entries if entry.name == name), {})

    def _tasks(self, entry: Entry, workload: str) -> list[Task]:
        chosen = self._variants(entry, workload)
        if not chosen:
            about = {"name": entry.name, "family": entry.family}
            return [_failed(about, ProblemError(f"{entry.name}: has no workload {workload!r}"))]
        return [self._task(entry, variant, alone=len(chosen) == 1) for variant in chosen]

    def _variants(self, entry: Entry, workload: str) -> list[Variant]:
        """Return the chosen workloads of a problem. Those with the weight 0 are left out."""
        weighted = self.weights.get(entry.name, {})
        wanted = set(workload.split(","))
        return [
            each
            for each in entry.variants
            if self._weight(entry, each) > 0
            and (
                bool({ALL, each.name, each.group} & wanted)
                or (not workload and (each.name in weighted if weighted else each.group == TIMED))
            )
        ]

    def _task(self, entry: Entry, variant: Variant, *, alone: bool) -> Task:
        about: dict[str, Any] = {
            "name": entry.name if alone else f"{entry.name}/{variant.name}",
            "family": entry.family,
            "workload": variant.name,
            "group": "" if alone else entry.name,
            "weight": self._weight(entry, variant),
            "notes": variant.notes,
        }
        try:
            return Task(**about, problem=variant.make())
        except Exception as error:  # the files of other suites may have fields of any type and size
            return _failed(about, error)

    def _weight(self, entry: Entry, variant: Variant) -> float:
        return self.weights.get(entry.name, {}).get(variant.name, variant.weight)

    def _check_workload(self, workload: str) -> None:
        """Raise ProblemError for a workload that no problem has."""
        names = {variant.name: None for entry in self.entries for variant in entry.variants if variant.name}
        groups = {variant.group: None for entry in self.entries for variant in entry.variants}
        for wanted in workload.split(",") if workload else ():
            if wanted == ALL or wanted in names or wanted in groups:
                continue
            if not names:
                raise ProblemError(f"{self.folder}: has no {MANIFEST}, so there is no workload {wanted!r}")
            # the suites of other projects have hundreds of workload names, but few groups
            known = [*names] if self.reader.name == "kforge" else [*groups, ALL]
            raise ProblemError(f"suite {self.name}: no workload {wanted!r}; there are: {', '.join(known)}")

    def _check_weights(self) -> None:
        """Raise ProblemError for a weight of a problem or workload that does not exist."""
        variants = {entry.name: {variant.name for variant in entry.variants} for entry in self.entries}
        for problem, by_workload in self.weights.items():
            if problem not in variants:
                raise ProblemError(f"suite {self.name}: the weights name a problem {problem!r} that it does not have")
            if unknown := sorted(set(by_workload) - variants[problem]):
                raise ProblemError(
                    f"suite {self.name}: the weights name a workload {unknown[0]!r} that {problem} does not have"
                )


def _failed(about: dict[str, Any], error: Exception) -> Task:
    """Return the task of a problem that cannot be used. It gets another name if its own cannot name a folder."""
    name = about["name"]
    reason = reason_of(error, name)
    with suppress(ValidationError):
        return Task(**about, failure=reason)
    escaped = name.encode("ascii", "backslashreplace")
    readable = re.sub(r"[^\w=+-]+", "_", escaped.decode())[:LONGEST_READABLE]
    return Task(name=f"{readable}-{hashlib.sha256(escaped).hexdigest()[:12]}", family="", failure=reason)


def shipped() -> list[str]:
    """Return the names of the suites that come with kforge."""
    return sorted(manifest.parent.name for manifest in SHIPPED.glob("*/suite.toml"))


def open_suite(name: str, choice: ProblemChoice | None = None, *, form: str = "", weights: Path | None = None) -> Suite:
    """Return the suite in a folder, of one problem file, or with a shipped name.

    `form` names the format; by default it is recognized by the files. `weights` is a file that says how often each
    workload is served. Raises ProblemError if there is no such suite or format, or if its suite.toml or the file of
    weights is wrong.
    """
    if name in shipped() and not Path(name).exists():
        folder = SHIPPED / name
    elif Path(name).exists():
        folder = Path(name)
    else:
        raise ProblemError(
            f"{name}: no such file or directory, and no suite of this name; there are: {', '.join(shipped())}"
        )
    return Suite(folder, find_reader(folder, form), choice, read_weights(weights) if weights else None)

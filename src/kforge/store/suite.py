"""The run of a suite on disk: a header, and an ordinary run folder for each of its problems.

    <root>/<id>/
    ├── suite.json                 the header; written last, so a folder without it is not a suite
    ├── signature                  of suite.json, by the user's key (signature.py)
    ├── problems/<family>/<name>/
    │   ├── <run id>/              the problem's run, as `kforge forge` makes it
    │   └── broken.json            why the last try to finish the problem failed
    └── lock                       held by the one process that works on the suite

There is no other state: a problem is finished if its run folder says so.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import field_validator

from kforge import __version__, durable
from kforge.errors import InputError, RunError
from kforge.problems import Task
from kforge.records import Record
from kforge.store import derived, lock, trust
from kforge.store.carried import shown
from kforge.store.folder import RunFolder, run_paths
from kforge.store.naming import SUITE_HEADER
from kforge.store.record_files import R, is_file, read_record, read_with_text
from kforge.store.records import FolderName, Moment, Option, Status, is_meant, run_id
from kforge.store.signature import SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.store.signature import Key
    from kforge.store.trust import Consent

SUITE = "suite"
"""The purpose of a suite's signature, which is part of the signed text. A signature for another purpose is not
valid."""


class SuiteHeader(Record):
    """How a suite began: everything that is needed to continue it, on this or on another machine."""

    format: Literal[1] = 1
    id: FolderName
    created: Moment
    """When the suite began: ISO 8601, UTC."""
    version: str
    suite: str
    workload: str
    """Name of the workload. Empty if the problems use the sizes in their files."""
    tasks: tuple[Task, ...]
    """The problems with their sources, so that an upgrade or an edited file does not change a suite that has begun."""
    options: dict[str, Option]
    """The options of every run with their final values, by name."""
    platform_dirs: tuple[str, ...] = ()

    @field_validator("tasks")
    @classmethod
    def _each_once_and_whole(cls, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        if len({task.name for task in tasks}) < len(tasks):
            raise ValueError("two of its problems have the same name")
        if any(task.problem is not None and task.problem.state_path is not None for task in tasks):
            raise ValueError("one of its problems names a file of weights")
        return tasks

    @classmethod
    def new(
        cls,
        *,
        suite: str,
        workload: str,
        tasks: tuple[Task, ...],
        options: dict[str, Option],
        platform_dirs: tuple[str, ...],
    ) -> Self:
        """Return the header of a suite that begins now, with a new id."""
        now = datetime.now(UTC)
        return cls(
            id=run_id(f"suite-{suite}", now),
            created=now.isoformat(timespec="seconds"),
            version=__version__,
            suite=suite,
            workload=workload,
            tasks=tasks,
            options=options,
            platform_dirs=platform_dirs,
        )


class Breakdown(Record):
    """Why work on a problem ended without a verdict on any program."""

    kind: Literal["problem", "evaluator", "model", "run", "kforge"]
    """The part that failed."""
    reason: str
    log: str = ""
    """The traceback, if kforge itself failed. Otherwise empty."""


class SuiteFolder:
    """One run of a suite on disk."""

    def __init__(self, path: Path, header: SuiteHeader, text: bytes) -> None:
        """`text` is the header as it is on disk."""
        self.path = path
        self.header = header
        self._text = text
        self._key: Key | None = None

    @property
    def id(self) -> str:
        return self.header.id

    @classmethod
    def create(cls, root: Path, header: SuiteHeader, key: Key | None = None) -> Self:
        """Create a suite on disk, signed with the user's key.

        Raises RunError if the folder exists or cannot be written, and InputError for a key that others can read.
        """
        path = root / header.id
        if path.exists():
            raise RunError(f"cannot begin suite {header.id}: {path} already exists")
        durable.make_folder(path)
        try:
            text = header.to_json(indent=2)
            if key is not None:
                key.write_signature(path / SIGNATURE, SUITE, text.encode(), within=path)
            durable.write(path / SUITE_HEADER, text)
        except InputError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        return cls(path, header, text.encode())

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return the suite in a folder. Raises RunError if it is missing, damaged or not a suite."""
        if not (path / SUITE_HEADER).is_file():
            raise RunError(f"{path} is not a suite's folder: it has no {SUITE_HEADER}")
        header, text = read_with_text(path / SUITE_HEADER, SuiteHeader)
        return cls(path, header, text)

    @classmethod
    def find(cls, root: Path, name: str) -> Self | None:
        """Return the suite that a user names, in the same ways as a run. None if the name is not a suite's.

        Raises RunError if the suite's header is damaged, or if the name fits several suites.
        """
        if is_file(Path(name) / SUITE_HEADER):
            return cls.open(Path(name))
        suites = [path for path in suite_paths(root) if is_meant(path.name, name)]
        exact = [path for path in suites if path.name == name]
        if not exact and any(is_meant(path.name, name) for path in run_paths(root)):
            return None  # the name may be of a run
        match exact or suites:
            case []:
                return None
            case [path]:
                return cls.open(path)
            case several:
                raise RunError(
                    f"{shown(name)} could be any of {len(several)} suites, the latest being {several[-1].name}"
                )

    def is_signed(self, key: Key) -> bool:
        """Return whether this user began the suite on this machine. Raises InputError for a key that others can
        read."""
        return key.has_signed_by(self.path / SIGNATURE, SUITE, self._text)

    def hold_to(self, key: Key) -> bool:
        """Return whether this key signed the suite. If it did, count only runs that it signed as well."""
        is_ours = self.is_signed(key)
        self._key = key if is_ours else None
        return is_ours

    def admit(self, key: Key, consent: Consent) -> None:
        """Raise RunError unless the user made the suite, or has consented to its code and its options."""
        if not self.is_signed(key):
            header = self.header
            trust.admit_options(header.options, header.platform_dirs, str(self.path), consent)
            problems = {task.name: task.problem for task in header.tasks if task.problem is not None}
            trust.admit_suite(problems, str(self.path), consent)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the suite's write lock inside the `with` block. Raises RunError if another process holds it."""
        durable.refuse_links(self.path / "problems", self.path)
        with lock.exclusive(self.path / "lock", what=f"suite {self.id}"):
            yield

    def status(self) -> Status:
        """Return whether the suite is finished, running, or interrupted."""
        if all(self.is_done(task) for task in self.header.tasks):
            return "finished"
        return "running" if lock.is_held(self.path / "lock") else "interrupted"

    def place(self, task: Task) -> Path:
        """Return the folder that contains a problem's run folder."""
        return self.path / "problems" / task.name

    def run_path(self, task: Task) -> Path | None:
        """Return the folder of the problem's run, or None if it has not begun."""
        return max(run_paths(self.place(task)), default=None)

    def run_of(self, task: Task) -> RunFolder | None:
        """Return the problem's run, or None if it has not begun.

        Raises RunError if the run is damaged, if it belongs to another problem, or if this user signed the suite but
        not the run (see `hold_to`).
        """
        path = self.run_path(task)
        if path is None:
            return None
        run = RunFolder.open(path)
        why = ""
        if task.problem is None or run.header.problem.digest != task.problem.digest:
            why = "holds a problem that differs from the suite's"
        elif self._key is not None and not run.hold_to(self._key):
            why = "was not made by you on this machine, although you began the suite (elsewhere? give --trust)"
        if why:
            raise RunError(f"{run.path} {why}; remove it, and the problem starts again")
        return run

    def derived(self, task: Task, name: str, kind: type[R]) -> R | None:
        """Return the stored facts of this name about the problem's finished run. None if there are none, or if
        `hold_to` was not called with the key that signed the suite."""
        path = self.run_path(task)
        if path is None or self._key is None or task.problem is None:
            return None
        return derived.read(path, name, kind, self._key, task.problem.digest)

    def keep_derived(self, task: Task, name: str, facts: Record) -> None:
        """Store facts about the problem's finished run. Does nothing unless `hold_to` was called with the key that
        signed the suite."""
        path = self.run_path(task)
        if path is not None and self._key is not None and task.problem is not None:
            derived.keep(path, name, facts, self._key, task.problem.digest)

    def breakdown_of(self, task: Task) -> Breakdown | None:
        """Return why work on the problem failed, or None if it did not. Raises RunError if that file is damaged."""
        if task.failure is not None:
            return Breakdown(kind="problem", reason=task.failure)
        path = self.place(task) / "broken.json"
        return read_record(path, Breakdown) if path.exists() else None

    def put_breakdown(self, task: Task, breakdown: Breakdown) -> None:
        """Record why work on the problem failed. Raises RunError if the file cannot be written."""
        durable.make_folder(self.place(task), within=self.path)
        durable.write(self.place(task) / "broken.json", breakdown.to_json(indent=2), within=self.path)

    def forget_breakdown(self, task: Task) -> None:
        """Remove the record of a failure, because the problem is tried again."""
        (self.place(task) / "broken.json").unlink(missing_ok=True)

    def is_finished(self, task: Task) -> bool:
        """Return whether the problem's run has ended, so that it must not be repeated."""
        path = self.run_path(task)
        if path is None or not (path / "result.json").exists():
            return False
        if self._key is not None and task.problem is not None and derived.is_kept(path, self._key, task.problem.digest):
            return True
        with suppress(RunError):  # resuming a damaged run reports the damage
            return (run := self.run_of(task)) is not None and run.outcome() is not None
        return False

    def is_done(self, task: Task) -> bool:
        return self.is_finished(task) or self.breakdown_of(task) is not None

    def discard(self) -> None:
        """Remove the folder of a suite that could not begin."""
        shutil.rmtree(self.path, ignore_errors=True)


def suite_paths(root: Path) -> list[Path]:
    """Return the folders under a root that are suites, oldest first."""
    return sorted(header.parent for header in root.glob(f"*/{SUITE_HEADER}"))


def find_folder(root: Path, name: str) -> RunFolder | SuiteFolder:
    """Return the run or suite that a user names, as `kforge runs` lists it, or by its folder.

    Raises RunError if no run or suite has this name, or if the name fits several.
    """
    suite = SuiteFolder.find(root, name)
    return suite if suite is not None else RunFolder.find(root, name)

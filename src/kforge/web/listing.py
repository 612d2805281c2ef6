"""The list of runs and suites on the first page. A folder that has not changed is not read again."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import RunError
from kforge.phrases import NOT_MEASURED
from kforge.store import RunFolder, SuiteFolder
from kforge.web import folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.records import Interval
    from kforge.store import Key

MOST_LISTED = 60
"""Runs and suites on the first page; older ones are a click away."""


@dataclass(frozen=True)
class Listed:
    """One run or suite in the list."""

    kind: str
    """`runs` or `suites`, as in its address."""
    name: str
    title: str
    about: str
    """Platform and model."""
    created: str
    status: str
    """`running`, `finished`, `interrupted` or `damaged`."""
    progress: str
    finding: str = ""
    """The best program's result in one word; empty where there is none."""
    speedup: Interval | None = None
    reason: str = ""
    is_signed: bool = True


class RunList:
    """Reads the list of a folder of runs."""

    def __init__(self, root: Path, key: Key) -> None:
        """`key`: the user's; what it did not sign is marked."""
        self.root = root
        self._key = key
        self._known: dict[Path, tuple[str, Listed]] = {}
        self._reading = threading.Lock()

    def newest(self, most: int | None = MOST_LISTED) -> tuple[list[Listed], int]:
        """Return the newest runs and suites, and how many there are in all. None as `most` returns all."""
        runs, suites = folders.runs(self.root), folders.suites(self.root)
        paths = sorted([*runs, *suites], key=lambda path: path.name, reverse=True)
        is_suite = set(suites)
        with self._reading:
            listed = [
                self._one(path, self._suite, folders.suite_mark) if path in is_suite
                else self._one(path, self._run, folders.mark) for path in paths[:most]
            ]  # fmt: skip
            self._known = {path: known for path, known in self._known.items() if path in set(paths)}
        return listed, len(paths)

    def _one(self, path: Path, read: Callable[[Path], Listed], mark: Callable[[Path], str]) -> Listed:
        now = mark(path)
        known = self._known.get(path)
        if known is None or known[0] != now:
            try:
                known = now, read(path)
            except (RunError, OSError) as error:
                kind = "suites" if read == self._suite else "runs"
                known = now, Listed(kind, path.name, path.name, "", "", "damaged", "", reason=str(error))
            self._known[path] = known
        return known[1]

    def _run(self, path: Path) -> Listed:
        run = RunFolder.open(path)
        is_signed = run.is_all_signed(self._key)
        if is_signed:
            run.hold_to(self._key)
        said = run.summary()
        finding = "" if said.finding is None else NOT_MEASURED if said.doubt else said.finding
        nothing = "nothing correct" if said.status == "finished" else ""
        return Listed(
            kind="runs",
            name=path.name,
            title=said.problem,
            about=f"{said.platform}, {said.model}",
            created=said.created,
            status=said.status,
            progress=f"{said.attempts} attempt{'s' * (said.attempts != 1)}",
            finding=finding or ("no kernel" if said.no_kernel else "correct" if said.doubt else nothing),
            speedup=None if said.doubt else said.speedup,
            reason=said.doubt or said.no_kernel or "",
            is_signed=is_signed,
        )

    def _suite(self, path: Path) -> Listed:
        suite = SuiteFolder.open(path)
        is_signed = suite.hold_to(self._key)
        header = suite.header
        done = sum(suite.is_done(task) for task in header.tasks)
        platform, model = (str(header.options.get(name, "?")) for name in ("platform", "model"))
        return Listed(
            kind="suites",
            name=path.name,
            title=f"suite {header.suite}" + (f" ({header.workload})" if header.workload else ""),
            about=f"{platform}, {model}",
            created=header.created,
            status=suite.status(),
            progress=f"{done} of {len(header.tasks)} problems",
            is_signed=is_signed,
        )

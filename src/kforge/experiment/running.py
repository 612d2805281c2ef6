"""Works on an experiment: every arm is a run of a suite, in a folder of its own.

<root>/experiment-<name>-<identity>/
    arms/<arm>/<repeat>/<suite id>/      what `kforge suite` makes

The folder's name follows from the arms and the problems. So an experiment that was interrupted goes on when it is
started again, and a changed one begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import InputError
from kforge.run_options import check_images, check_models
from kforge.session import usable_platform
from kforge.store import SuiteFolder, suite_paths
from kforge.suite.runner import SuiteSession

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kforge.experiment.definition import Arm, Experiment
    from kforge.problems import Task
    from kforge.settings import Settings


@dataclass(frozen=True)
class ArmTasks:
    """The problems of an arm, as the runner of suites takes them."""

    name: str
    listed: tuple[Task, ...]

    def tasks(self, workload: str = "", only: str = "") -> list[Task]:  # noqa: ARG002 - chosen when the file was read
        return list(self.listed)


class ExperimentSession:
    """An experiment and its folder. Begins the suites of its arms, or finds those that were begun before."""

    def __init__(self, experiment: Experiment, settings: Settings, *, root: Path, extra: Sequence[Path] = ()) -> None:
        """`extra`: folders of further platforms. Raises InputError for a platform or model that cannot be used, before
        anything begins."""
        self.experiment = experiment
        self.settings = settings
        self.extra = tuple(extra)
        self.folder = root / f"experiment-{experiment.file.name}-{experiment.identity[:8]}"
        for arm in experiment.arms:
            usable_platform(arm.options.platform, settings, extra)
            try:
                check_models(arm.options, settings)
                check_images(arm.options)
            except InputError as error:
                raise InputError(f"{experiment.path}: arm {arm.name}: {error}") from error

    def suites(self) -> Iterator[tuple[Arm, SuiteSession]]:
        """Yield each arm with the session of its suite, once for each repetition.

        Each repetition goes through all arms, so that slow drift of the machine affects all arms alike.

        Raises RunError if a suite is damaged.
        """
        for repeat in range(1, self.experiment.file.repeats + 1):
            for arm in self.experiment.arms:
                yield arm, self._session(arm, self.folder / "arms" / arm.folder / str(repeat))

    def _session(self, arm: Arm, place: Path) -> SuiteSession:
        if begun := suite_paths(place):
            return SuiteSession(SuiteFolder.open(begun[-1]), self.settings)
        source = ArmTasks(self.experiment.suite, arm.tasks)
        workload = self.experiment.file.workload
        return SuiteSession.begin(source, arm.options, self.settings, root=place, workload=workload, extra=self.extra)

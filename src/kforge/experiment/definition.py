"""Reads the file of an experiment.

name = "rewrites"
question = "Do algebraic rewrites help?"
suite = "core"                       # a name, or a path from the file's folder
only = "algebra/*"
measures = ["correct", "speedup"]

[options]                            # of every arm
iterations = 3

[arms.with]                          # the first arm is the base of the comparison
[arms.without]
rewrites = false

[matrix]                             # every arm once for each combination of these
profile_as = ["text", "none"]
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, field_validator

from kforge import reading
from kforge.errors import InputError
from kforge.metrics import MEASURES
from kforge.problems import open_suite
from kforge.records import Record
from kforge.records.faults import first_fault
from kforge.run_options import RunOptions, choose_model, new_options
from kforge.session import platform_at_hand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kforge.problems import Task
    from kforge.settings import Settings

MOST_ARMS = 32
"""Most arms of an experiment. With more arms, the correction for multiple tests would hide any difference."""
NOT_OF_AN_ARM = {
    "platform": "it is given once, above [options], or by -p",
    "remember": "an experiment never uses memory across runs, because one arm would learn from another",
    "memory_without": "an experiment never uses memory across runs",
    "plan": "the built-in generator finds its plan itself",
    "images": "they are for a single run",
    "reference": "name a file for each problem by references = 'FOLDER/{problem}.py'",
}
"""Options of a run that an experiment does not take, each with the reason."""
REFERENCES = "references"
"""The option of an arm that is no option of a run: the pattern of the files with reference implementations."""


class ExperimentFile(Record):
    """The content of an experiment's file."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    question: str
    suite: str
    workload: str = ""
    only: str = ""
    platform: str = ""
    against: Literal["eager", "compile", "fastest"] = "eager"
    """The baseline of speedups; `fastest`: for each problem the fastest one."""
    measures: tuple[str, ...] = Field(default=("correct", "speedup"), min_length=1)
    repeats: int = Field(default=1, ge=1, le=20)
    """How often every arm works on every problem. Numbers of a problem are averaged."""
    options: dict[str, Any] = Field(default_factory=dict)
    arms: dict[str, dict[str, Any]] = Field(default_factory=dict)
    matrix: dict[str, list[Any]] = Field(default_factory=dict)

    @field_validator("measures")
    @classmethod
    def _are_known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in MEASURES:
                raise ValueError(f"there is no measure {name!r}; there are: {', '.join(MEASURES)}")
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Arm:
    """One set of options, under which all problems are worked on."""

    name: str
    options: RunOptions
    chosen: Mapping[str, object]
    """What distinguishes the arm: its own options in the file."""
    tasks: tuple[Task, ...]
    """The problems, with a reference implementation each where the arm names some."""

    @property
    def folder(self) -> str:
        """Name of the arm's folder."""
        return re.sub(r"[^A-Za-z0-9.=-]+", "-", self.name).strip(".-")[:80] or "arm"


@dataclass(frozen=True)
class Experiment:
    """Several arms over the same problems. The first arm is the base that the others are compared with."""

    path: Path
    file: ExperimentFile
    suite: str
    """Name of the suite."""
    arms: tuple[Arm, ...]

    @property
    def baselines(self) -> tuple[str, ...]:
        """Return the baselines against which speedups count: those of the file that every arm measures."""
        measured = ("eager", "compile") if all(arm.options.compile_baseline for arm in self.arms) else ("eager",)
        return measured if self.file.against == "fastest" else (self.file.against,)

    @property
    def identity(self) -> str:
        """Return a digest of everything that decides the result: arms, options and problems."""
        parts = [self.file.against, str(self.file.repeats)]
        for arm in self.arms:
            parts += [arm.name, arm.options.digest, *(task.digest for task in arm.tasks)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read_experiment(
    path: Path,
    settings: Settings,
    *,
    platform: str = "",
    model: str = "",
    only: str = "",
    extra: Sequence[Path] = (),
) -> Experiment:
    """Return the experiment of a file. `platform` and `only` replace those of the file; `model` is for arms that name
    none. `extra`: folders of further platforms.

    Raises InputError with one line for a file that cannot be read, an unknown key or option, a bad value, arms that do
    not differ, and problems that do not exist.
    """
    file = _parsed(path)
    said = [file.options, *file.arms.values(), *({name: None} for name in file.matrix)]
    for options in said:
        _check_names(path, options)
    suite = open_suite(_placed(path, file.suite))
    tasks = tuple(suite.tasks(file.workload, only or file.only))
    model = choose_model(model, settings)
    written_by = str(file.options.get("model") or model)
    chosen = {"platform": platform or file.platform or platform_at_hand(settings, extra, model=written_by)}
    arms = tuple(
        _arm(path, name, own, {"model": model, **file.options, **own, **chosen}, tasks)
        for name, own in _combinations(path, file)
    )
    experiment = Experiment(path, file, suite.name, arms)
    _check(experiment)
    return experiment


def _parsed(path: Path) -> ExperimentFile:
    try:
        said = reading.toml(reading.text(path, most=reading.LARGEST_MANIFEST))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {reading.reason(error)}") from error
    except ValueError as error:
        raise InputError(f"{path}: is not valid TOML: {error}") from error
    try:
        return ExperimentFile.model_validate(said)
    except ValidationError as error:
        fault = first_fault(error)
        if error.errors()[0]["type"] == "extra_forbidden":
            raise InputError(
                f"{path}: there is no key {fault.field!r}; there are: {', '.join(ExperimentFile.model_fields)}"
            ) from error
        raise InputError(f"{path}: {fault}") from error


def _check_names(path: Path, options: Mapping[str, object]) -> None:
    """Raise InputError for an option that runs do not have, or that an experiment does not take."""
    for name in options:
        if name in NOT_OF_AN_ARM:
            raise InputError(f"{path}: an arm cannot set {name}: {NOT_OF_AN_ARM[name]}")
        known = [each for each in RunOptions.model_fields if each not in NOT_OF_AN_ARM]
        if name not in known and name != REFERENCES:
            raise InputError(f"{path}: there is no option {name!r}; there are: {', '.join([*known, REFERENCES])}")


def _combinations(path: Path, file: ExperimentFile) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the own options of each arm: each in the file, once for each combination of the matrix."""
    for name, values in file.matrix.items():
        if not values or any(isinstance(value, list | dict) for value in values):
            raise InputError(f"{path}: matrix.{name} must be a list of values")
    axes = [[(name, value) for value in values] for name, values in file.matrix.items()]
    for arm, own in (file.arms or {"": {}}).items():
        for point in product(*axes):
            parts = ([arm] if arm else []) + [f"{name}={_written(value)}" for name, value in point]
            yield ", ".join(parts) or "only", {**own, **dict(point)}


def _arm(path: Path, name: str, own: Mapping[str, Any], chosen: dict[str, Any], tasks: tuple[Task, ...]) -> Arm:
    """Return an arm. `own`: its own options; `chosen`: all of its options."""
    pattern = chosen.pop(REFERENCES, "")
    for agent in ("model", "analyst"):
        if agent in chosen:
            chosen[agent] = _placed_model(path, chosen[agent])
    try:
        options = new_options(**chosen, remember=False)
    except InputError as error:
        raise InputError(f"{path}: arm {name}: {error}") from error
    if pattern:
        tasks = tuple(_with_reference(path, str(pattern), task) for task in tasks)
    elif options.reference_platform:
        raise InputError(f"{path}: arm {name}: reference_platform is for programs of references, which is not given")
    return Arm(name, options, own, tasks)


def _with_reference(path: Path, pattern: str, task: Task) -> Task:
    """Return the task with its reference implementation. Raises InputError if its file cannot be read."""
    if task.problem is None:
        return task
    named = pattern.replace("{name}", task.name).replace("{problem}", task.name.rpartition("/")[2])
    file = path.parent / named
    try:
        return task.model_copy(update={"reference": reading.text(file)})
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: no reference for {task.name}: cannot read {file}: {reading.reason(error)}"
        ) from error


def _check(experiment: Experiment) -> None:
    """Raise InputError for arms that cannot be compared."""
    path, arms = experiment.path, experiment.arms
    if not 2 <= len(arms) <= MOST_ARMS:
        raise InputError(f"{path}: an experiment compares 2 to {MOST_ARMS} arms, and this one has {len(arms)}")
    folders: dict[str, str] = {}
    for arm in arms:
        if arm.folder in folders:
            raise InputError(
                f"{path}: the names of the arms {folders[arm.folder]!r} and {arm.name!r} are too similar; rename one"
            )
        folders[arm.folder] = arm.name
    for number, arm in enumerate(arms):
        for other in arms[:number]:
            if arm.options == other.options and arm.tasks == other.tasks:
                raise InputError(f"{path}: the arms {other.name!r} and {arm.name!r} do not differ")
    if experiment.file.against != "eager" and not all(arm.options.compile_baseline for arm in arms):
        raise InputError(f"{path}: against = {experiment.file.against!r} needs compile_baseline in every arm")


def _placed(path: Path, name: str) -> str:
    """Return the whole path of a file or folder beside the experiment's file, or the name if no such file exists."""
    beside = path.parent / name
    return str(beside.resolve()) if beside.exists() else name


def _placed_model(path: Path, name: object) -> object:
    """Return a model's name, with the folder of a recording or the file of a script found beside the experiment."""
    if isinstance(name, str):
        kind, _, rest = name.partition(":")
        if kind in ("replay", "scripted") and rest:
            return f"{kind}:{_placed(path, rest)}"
    return name


def _written(value: object) -> str:
    """Return a value as TOML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Reads `suite.toml`, and files of weights. Nothing is executed.

name = "core"
default = "small"
workloads = ["small", "large"]

[problems."norms/unit_rows"]
large = { ROWS = 65536, FEATURES = 2048 }
labels.precision_blind = "why that is all right"

[weights."norms/unit_rows"]      # how often each shape is served; a file of `--weights` has only such tables
small = 94
large = 6
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from kforge import reading
from kforge.errors import ProblemError
from kforge.records import Record
from kforge.records.faults import first_fault

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "suite.toml"
Weights = dict[str, dict[str, float]]
"""For each problem, how often each of its workloads is served."""
_WEIGHTS = TypeAdapter(Weights)


class Workloads(Record):
    """The entries of `suite.toml` for one problem."""

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
    weights: Weights = Field(default_factory=dict)

    @model_validator(mode="after")
    def _only_known_workloads(self) -> SuiteManifest:
        if self.default not in self.workloads:
            raise ValueError(f"the default workload {self.default!r} is not among its workloads")
        for name, said in self.problems.items():
            if unknown := sorted(set(said.constants) - set(self.workloads)):
                raise ValueError(f"problem {name!r} has a workload {unknown[0]!r} that the suite does not have")
        return self


def read_manifest(folder: Path) -> SuiteManifest | None:
    """Return the contents of the folder's `suite.toml`; None if it has none. Raises ProblemError if the file is
    wrong."""
    path = folder / MANIFEST
    if not (folder.is_dir() and os.path.lexists(path)):
        return None
    said = _toml(path)
    try:
        for name, about in said.get("problems", {}).items():
            labels = about.pop("labels", {})
            said["problems"][name] = {"labels": labels, "constants": about}
        manifest = SuiteManifest.model_validate(said)
    except ValidationError as error:
        raise ProblemError(f"{path}: {first_fault(error)}") from error
    except (AttributeError, TypeError):
        raise ProblemError(f"{path}: 'problems' must hold a table for each problem") from None
    _check_weights(manifest.weights, path)
    return manifest


def read_weights(path: Path) -> Weights:
    """Return the tables `[weights."problem"]` of a file. Raises ProblemError if it has none, or if one is wrong."""
    said = _toml(path)
    try:
        weights = _WEIGHTS.validate_python(said.get("weights", {}))
    except ValidationError as error:
        raise ProblemError(f"{path}: weights.{first_fault(error)}") from error
    if not weights:
        raise ProblemError(f'{path}: has no table [weights."problem"] with a number for each workload')
    _check_weights(weights, path)
    return weights


def _check_weights(weights: Weights, path: Path) -> None:
    for problem, by_workload in weights.items():
        for workload, weight in by_workload.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ProblemError(f"{path}: the weight of {problem!r} at {workload!r} is {weight:g}, not 0 or more")
        if not any(by_workload.values()):
            raise ProblemError(f"{path}: no workload of {problem!r} has a weight over 0")


def _toml(path: Path) -> dict[str, Any]:
    try:
        return reading.toml(reading.text(path, most=reading.LARGEST_MANIFEST))
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path}: cannot be read: {reading.reason(error)}") from error
    except ValueError as error:
        raise ProblemError(f"{path}: is not valid TOML: {error}") from error

"""Suites: which problems a folder has, by family, and what a workload makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge.errors import ProblemError
from kforge.problems import open_suite
from kforge.problems.suite import Task, shipped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZED = "ROWS = 4\nclass Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
TOML = """\
name = "ours"
default = "small"
workloads = ["small", "large"]

[problems."norms/a"]
large = { ROWS = 64 }
labels.precision_blind = "it is a mask"
"""


@pytest.fixture
def ours(write: Callable[..., Path], tmp_path: Path) -> Path:
    write(SIZED, "norms/a.py")
    write(SIZED, "norms/b/problem.py")
    write(SIZED, "alone.py")
    write("def (\n", "norms/broken.py")
    write("x = 1\n", "norms/library.py")
    return tmp_path


def test_a_folder_without_a_manifest(ours: Path) -> None:
    suite = open_suite(str(ours))
    assert suite.name == ours.name
    tasks = {task.name: task for task in suite.tasks()}
    assert {name: task.family for name, task in tasks.items()} == {
        "alone": "", "norms/a": "norms", "norms/b": "norms", "norms/broken": "norms",
    }  # fmt: skip
    assert "broken.py: is not valid Python: line 1" in str(tasks["norms/broken"].failure)
    assert [task.name for task in tasks.values() if task.problem is None] == ["norms/broken"]
    with pytest.raises(ProblemError, match=r"has no suite.toml, so there is no workload 'large'"):
        suite.tasks("large")


def test_a_workload_is_written_into_the_problem(ours: Path) -> None:
    (ours / "suite.toml").write_text(TOML)
    suite = open_suite(str(ours))
    assert suite.name == "ours"
    for workload, rows in (("", 4), ("small", 4), ("large", 64)):
        (task,) = suite.tasks(workload, only="norms/a")
        assert task.problem is not None
        assert task.problem.source.startswith(f"ROWS = {rows}\n")
    (task,) = suite.tasks("large", only="alone")
    assert task.failure == "alone: suite.toml has no workload 'large' for it"
    assert suite.expected_labels("norms/a") == {"precision_blind": "it is a mask"}
    with pytest.raises(ProblemError, match="suite ours: no workload 'huge'; there are: small, large"):
        suite.tasks("huge")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("norms/*", {"norms/a", "norms/b", "norms/broken"}),
        ("alone", {"alone"}),
        ("[ab]", set()),
        ("*/[ab]", {"norms/a", "norms/b"}),
        ("alone,*/a", {"alone", "norms/a"}),
        (",", set()),
    ],
)
def test_only_some(ours: Path, pattern: str, names: set[str]) -> None:
    suite = open_suite(str(ours))
    if names:
        assert {task.name for task in suite.tasks(only=pattern)} == names
    else:
        with pytest.raises(ProblemError, match="no problem matches"):
            suite.tasks(only=pattern)


def test_two_files_of_one_name_are_two_problems(write: Callable[..., Path], tmp_path: Path) -> None:
    write(SIZED, "a.py")
    write(SIZED, "a/problem.py")
    assert [task.name for task in open_suite(str(tmp_path)).tasks()] == ["a/problem", "a"]


def test_a_single_file_is_a_suite_of_one(write: Callable[..., Path]) -> None:
    (task,) = open_suite(str(write(SIZED, "a.py"))).tasks()
    assert (task.name, task.family) == ("a", "")


def test_a_suite_of_a_name() -> None:
    assert "core" in shipped()
    assert open_suite("core").name == "core"
    with pytest.raises(ProblemError, match="no suite of this name; there are: core"):
        open_suite("kernels")


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("name = ", "is not valid TOML"),
        ("name = 'x'\n", "default: is missing"),
        (TOML.replace('default = "small"', 'default = "tiny"'), "default workload 'tiny' is not among"),
        (TOML + "huge = { ROWS = 1 }\n", "workload 'huge' that the suite does not have"),
        ("problems = 3\n" + TOML.partition("[problems")[0], "'problems' must hold a table"),
        (TOML.replace("norms/a", "norms/z"), "there is no problem 'norms/z'"),
        (TOML.replace("{ ROWS = 64 }", "64"), "constants.large: must be a table of names and values, not 64"),
    ],
)
def test_a_bad_manifest_is_told_in_one_line(ours: Path, toml: str, said: str) -> None:
    (ours / "suite.toml").write_text(toml)
    with pytest.raises(ProblemError) as caught:
        open_suite(str(ours)).tasks()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_override_that_names_no_constant_fails_that_task_alone(ours: Path) -> None:
    (ours / "suite.toml").write_text(TOML.replace("ROWS = 64", "COLUMNS = 64"))
    tasks = {task.name: task for task in open_suite(str(ours)).tasks("large")}
    assert "has no module-level constant COLUMNS" in str(tasks["norms/a"].failure)


def test_a_task_is_a_problem_or_a_failure() -> None:
    with pytest.raises(ValueError, match="a problem or the reason"):
        Task(name="a", family="")


WEIGHTS = '[weights."norms/a"]\nsmall = 94\nlarge = 6\n'


def test_weights_choose_the_workloads_and_are_kept(ours: Path) -> None:
    (ours / "suite.toml").write_text(TOML + WEIGHTS)
    tasks = {task.name: task for task in open_suite(str(ours)).tasks(only="*/a,*/b")}
    assert {name: (task.group, task.workload, task.weight) for name, task in tasks.items()} == {
        "norms/a/small": ("norms/a", "small", 94.0),
        "norms/a/large": ("norms/a", "large", 6.0),
        "norms/b": ("", "small", 1.0),
    }
    assert "ROWS = 64" in tasks["norms/a/large"].problem.source  # type: ignore[union-attr]


def test_a_file_of_weights_replaces_those_of_the_suite(ours: Path) -> None:
    (ours / "suite.toml").write_text(TOML + WEIGHTS)
    file = ours / "weights.toml"
    file.write_text('[weights."norms/a"]\nsmall = 0\nlarge = 2.5\n')
    (task,) = open_suite(str(ours), weights=file).tasks(only="norms/a")
    assert (task.name, task.workload, task.weight) == ("norms/a", "large", 2.5)


def test_all_workloads_and_several_by_name(ours: Path) -> None:
    (ours / "suite.toml").write_text(TOML)
    for workload in ("all", "small,large"):
        names = [task.name for task in open_suite(str(ours)).tasks(workload, only="norms/a")]
        assert names == ["norms/a/small", "norms/a/large"]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ('[weights."norms/z"]\nsmall = 1\n', "the weights name a problem 'norms/z' that it does not have"),
        ('[weights."norms/a"]\nhuge = 1\n', "the weights name a workload 'huge' that norms/a does not have"),
        ('[weights."norms/a"]\nsmall = -1\n', "the weight of 'norms/a' at 'small' is -1, not 0 or more"),
        ('[weights."norms/a"]\nsmall = inf\n', "is inf, not 0 or more"),
        ('[weights."norms/a"]\nsmall = 0\n', "no workload of 'norms/a' has a weight over 0"),
        ("[weights]\nsmall = 1\n", "weights.small: must be a table of names and values, not 1"),
        ("x = 1\n", "has no table"),
        ("x = ", "is not valid TOML"),
    ],
)
def test_bad_weights_are_told_in_one_line(ours: Path, weights: str, said: str) -> None:
    (ours / "suite.toml").write_text(TOML)
    file = ours / "weights.toml"
    file.write_text(weights)
    with pytest.raises(ProblemError) as caught:
        open_suite(str(ours), weights=file).tasks()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)

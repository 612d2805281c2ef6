"""A suite's folder: found by path, id or the beginning of one, and never taken for a run."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from kforge.errors import RunError
from kforge.problems import Task
from kforge.records import Problem
from kforge.store import Breakdown, Key, RunFolder, SuiteFolder, SuiteHeader, index_url, list_runs, suite_paths

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.records import Outcome
    from kforge.store import Header

A = Task(name="one/a", family="one", problem=Problem(name="a", source="class Model: ...\n"))
BAD = Task(name="bad", family="", failure="bad.py: is not valid Python")


def make(root: Path, name: str = "ours", key: Key | None = None) -> SuiteFolder:
    header = SuiteHeader.new(suite=name, workload="small", tasks=(A, BAD), options={"iterations": 5}, platform_dirs=())
    return SuiteFolder.create(root, header, key)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    suite = make(tmp_path)
    assert SuiteFolder.open(suite.path).header == suite.header
    with pytest.raises(RunError, match="already exists"):
        SuiteFolder.create(tmp_path, suite.header)


def test_it_is_found_as_a_run_is(tmp_path: Path) -> None:
    suite = make(tmp_path)
    for name in (str(suite.path), suite.id, suite.id[:-3]):
        found = SuiteFolder.find(tmp_path, name)
        assert found is not None
        assert found.id == suite.id
    for name in ("", "20200101", str(tmp_path)):
        assert SuiteFolder.find(tmp_path, name) is None
    other = make(tmp_path)
    with pytest.raises(RunError, match=f"could be any of 2 suites, the latest being {max(suite.id, other.id)}"):
        SuiteFolder.find(tmp_path, suite.id[:8])


def test_where_a_run_may_be_meant_no_suite_is_found(tmp_path: Path, header: Callable[..., Header]) -> None:
    suite, run = make(tmp_path), RunFolder.create(tmp_path, header())
    assert SuiteFolder.find(tmp_path, suite.id[:8]) is None
    assert RunFolder.find(tmp_path, run.id[:8]).id == run.id
    assert [row.id for row in list_runs(tmp_path, index_url(tmp_path)).runs] == [run.id]
    assert suite_paths(tmp_path) == [suite.path]


def test_what_is_finished_is_what_the_run_folders_say(
    tmp_path: Path, header: Callable[..., Header], outcome: Callable[..., Outcome]
) -> None:
    suite = make(tmp_path)
    assert (suite.run_of(A), suite.is_done(A), suite.status()) == (None, False, "interrupted")
    assert suite.is_done(BAD), "what was no problem from the beginning needs no work"
    run = RunFolder.create(suite.place(A), header().model_copy(update={"problem": A.problem}))
    found = suite.run_of(A)
    assert found is not None
    assert (found.id, suite.is_finished(A)) == (run.id, False)
    suite.put_breakdown(A, Breakdown(kind="model", reason="down"))
    assert suite.status() == "finished"
    suite.forget_breakdown(A)
    assert suite.status() == "interrupted"
    with run.writing():
        run.finish(outcome(None))
    assert (suite.is_finished(A), suite.status()) == (True, "finished")


@pytest.mark.parametrize(("content", "said"), [("{", "damaged"), ('{"format": 2}', "damaged: format")])
def test_a_damaged_header(tmp_path: Path, content: str, said: str) -> None:
    suite = make(tmp_path)
    (suite.path / "suite.json").write_text(content)
    with pytest.raises(RunError, match=said):
        SuiteFolder.open(suite.path)
    with pytest.raises(RunError, match=r"is not a suite's folder: it has no suite\.json"):
        SuiteFolder.open(tmp_path)


def test_no_problem_of_a_suite_names_a_file_of_weights() -> None:
    """Cause: a suite of others could have any file of the user's copied into its folder."""
    task = Task(name="a/b", family="a", problem=Problem(name="b", source="b", state_path="/etc/hostname"))
    with pytest.raises(ValidationError, match="names a file of weights"):
        SuiteHeader.new(suite="s", workload="", tasks=(task,), options={}, platform_dirs=())


@pytest.mark.parametrize("name", ["../a", "a/../../b", "", "a//b"])
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a folder"):
        Task(name=name, family="", failure="bad")


def run_in(suite: SuiteFolder, header: Header, outcome: Outcome, key: Key | None, source: str = "") -> RunFolder:
    assert A.problem is not None
    problem = Problem(name="a", source=source) if source else A.problem
    run = RunFolder.create(suite.place(A), header.model_copy(update={"problem": problem}), key)
    with run.writing():
        run.finish(outcome)
    return run


def test_a_run_of_another_problem_or_of_others_does_not_count(
    tmp_path: Path, header: Callable[..., Header], outcome: Callable[..., Outcome]
) -> None:
    """Cause: a problem counted as finished when any folder in its place had a result.json."""
    key = Key(tmp_path / "state")
    suite = make(tmp_path, key=key)
    assert suite.hold_to(key)
    another = run_in(suite, header(), outcome(None), key, source="class Model: 'another'\n")
    with pytest.raises(RunError, match="holds a problem that differs from the suite's; remove it"):
        suite.run_of(A)
    shutil.rmtree(another.path)
    theirs = run_in(suite, header(), outcome(None), Key(tmp_path / "theirs"))
    with pytest.raises(RunError, match="was not made by you on this machine, although you began the suite"):
        suite.run_of(A)
    assert not suite.is_finished(A)
    theirs.path.rename(tmp_path / "theirs.away")
    ours = run_in(suite, header(), outcome(None), key)
    assert suite.is_finished(A)
    found = suite.run_of(A)
    assert found is not None
    assert found.id == ours.id
    (ours.path / "result.json").write_text(outcome(None, stopped="as I please").to_json())
    assert not suite.is_finished(A)
    shutil.rmtree(ours.path)
    (tmp_path / "theirs.away").rename(theirs.path)
    assert not suite.hold_to(Key(tmp_path / "a third"))  # a suite of others is shown as it is, and said to be theirs
    found = suite.run_of(A)
    assert found is not None
    assert found.id == theirs.id

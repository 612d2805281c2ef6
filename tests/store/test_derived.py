"""Facts that are kept of a finished run count only for that run, its problem and its outcome, and only signed."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from pydantic import create_model

from kforge.errors import InputError
from kforge.problems import Task
from kforge.records import Record
from kforge.store import Key, RunFolder, RunSummary, SuiteFolder, SuiteHeader, derived, list_runs
from kforge.suite import result_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kforge.records import Attempt, Outcome
    from kforge.store import Header


class Facts(Record):
    """Some facts."""

    best: str


class OtherFacts(Record):
    """The same field, and one that an earlier version had not."""

    best: str
    cost: float = 0.0


@pytest.fixture
def key(tmp_path: Path) -> Key:
    return Key(tmp_path / "state")


@pytest.fixture
def run(
    tmp_path: Path, key: Key, header: Callable[..., Header], attempt: Callable[..., Attempt],
    outcome: Callable[..., Outcome],
) -> RunFolder:  # fmt: skip
    """A finished run with one attempt."""
    run = RunFolder.create(tmp_path / "runs", header(), key)
    with run.writing():
        run.commit(attempt(0, 2.0))
        run.finish(outcome(0))
    return run


def test_what_is_kept_is_read_again(run: RunFolder, key: Key) -> None:
    assert derived.read(run.path, "facts", Facts, key) is None
    derived.keep(run.path, "facts", Facts(best="this"), key, "digest")
    assert derived.read(run.path, "facts", Facts, key, "digest") == Facts(best="this")
    assert derived.is_kept(run.path, key, "digest")


def test_facts_of_another_problem_shape_or_key_do_not_count(run: RunFolder, key: Key, tmp_path: Path) -> None:
    derived.keep(run.path, "facts", Facts(best="this"), key, "digest")
    assert derived.read(run.path, "facts", Facts, key, "another") is None
    assert derived.read(run.path, "facts", OtherFacts, key, "digest") is None, "a new field is not read as its default"
    assert derived.read(run.path, "facts", Facts, Key(tmp_path / "elsewhere"), "digest") is None
    derived.keep(run.path, "facts", OtherFacts(best="that"), key, "digest")
    assert derived.read(run.path, "facts", OtherFacts, key, "digest") == OtherFacts(best="that")


def test_a_changed_docstring_discards_no_facts(run: RunFolder, key: Key) -> None:
    derived.keep(run.path, "facts", Facts(best="this"), key)
    reworded = create_model("Facts", __base__=Record, __doc__="Other words.", best=(str, ...))
    assert derived.read(run.path, "facts", reworded, key) == reworded.model_validate({"best": "this"})


def test_a_changed_field_named_description_discards_the_facts(run: RunFolder, key: Key) -> None:
    number, text = (
        create_model("Facts", __base__=Record, description=(kind, default)) for kind, default in ((int, 0), (str, ""))
    )
    derived.keep(run.path, "facts", number(), key)
    assert derived.read(run.path, "facts", number, key) == number()
    assert derived.read(run.path, "facts", text, key) is None


def test_facts_are_ignored_while_others_can_read_the_key(run: RunFolder, key: Key) -> None:
    derived.keep(run.path, "facts", Facts(best="this"), key)
    key.path.chmod(0o644)
    assert derived.read(run.path, "facts", Facts, key) is None
    assert not derived.is_kept(run.path, key, "")
    derived.keep(run.path, "others", Facts(best="that"), key)
    assert not (run.path / "derived" / "others").exists()
    with pytest.raises(InputError, match="open to others"):  # a check of trust still says why
        RunFolder.open(run.path).hold_to(key)
    key.path.chmod(0o600)
    assert derived.read(run.path, "facts", Facts, key) == Facts(best="this")


def test_edited_facts_and_facts_of_another_run_do_not_count(run: RunFolder, key: Key) -> None:
    derived.keep(run.path, "facts", Facts(best="this"), key, "digest")
    file = run.path / "derived" / "facts"
    other = run.path.with_name("other")
    shutil.copytree(run.path, other)
    assert derived.read(other, "facts", Facts, key, "digest") is None
    file.write_bytes(file.read_bytes().replace(b"this", b"that"))
    assert derived.read(run.path, "facts", Facts, key, "digest") is None
    assert not derived.is_kept(run.path, key, "digest")


def test_a_run_that_finishes_keeps_its_summary_by_which_it_is_listed(run: RunFolder, key: Key) -> None:
    """Cause: the first list of many runs read every attempt of them, which took 7 s for 10,000 attempts."""
    root = run.path.parent
    summary = run.summary()
    assert derived.read(run.path, derived.SUMMARY, RunSummary, key) == summary
    (run.path / "attempts" / "000" / "attempt.json").write_text("not read")
    assert list_runs(root, "sqlite://", key) == ((summary,), ())
    assert "attempt.json is damaged" in list_runs(root, "sqlite://").notes[0], "without the key no summary counts"


def test_a_summary_ends_with_the_header_that_it_is_of(run: RunFolder, key: Key) -> None:
    header = run.path / "run.json"
    header.write_bytes(header.read_bytes().replace(b'"created": "2', b'"created": "x'))
    listing = list_runs(run.path.parent, "sqlite://", key)
    assert listing.runs == ()
    assert "it is not a date and time" in listing.notes[0]


def test_a_run_that_others_began_keeps_no_summary(
    tmp_path: Path, key: Key, header: Callable[..., Header], attempt: Callable[..., Attempt],
    outcome: Callable[..., Outcome],
) -> None:  # fmt: skip
    foreign = RunFolder.create(tmp_path / "runs", header())
    foreign.hold_to(key)
    with foreign.writing():
        foreign.commit(attempt(0, 2.0))
        foreign.finish(outcome(0))
    assert not (foreign.path / "derived").exists()


def test_facts_end_with_the_outcome_that_they_are_of(run: RunFolder, key: Key) -> None:
    derived.keep(run.path, "facts", Facts(best="this"), key)
    result = run.path / "result.json"
    os.utime(result, ns=(0, 0))
    assert derived.read(run.path, "facts", Facts, key) is None, "the run was reopened and has ended again"
    result.unlink()
    derived.keep(run.path, "facts", Facts(best="this"), key)
    assert derived.read(run.path, "facts", Facts, key) is None, "an unfinished run has none"


def test_the_result_of_a_finished_problem_is_read_without_its_attempts(
    tmp_path: Path, key: Key, header: Callable[..., Header], attempt: Callable[..., Attempt],
    outcome: Callable[..., Outcome],
) -> None:  # fmt: skip
    begun = header()
    task = Task(name="one/a", family="one", problem=begun.problem)
    suite = SuiteFolder.create(
        tmp_path / "runs",
        SuiteHeader.new(suite="ours", workload="", tasks=(task,), options={}, platform_dirs=()),
        key,
    )
    run = RunFolder.create(suite.place(task), begun, key)
    with run.writing():
        run.commit(attempt(0, 2.0))
        assert suite.hold_to(key)
        assert result_of(suite, task).state == "unfinished"
        run.finish(outcome(0))
    first = result_of(suite, task)
    assert (first.state, first.attempts, first.run) == ("correct", 1, str(run.path))
    (run.path / "attempts" / "000" / "attempt.json").unlink()
    assert result_of(suite, task) == first
    assert suite.is_finished(task)

    stranger = SuiteFolder.open(suite.path)
    assert not stranger.hold_to(Key(tmp_path / "elsewhere"))
    assert result_of(stranger, task).state == "broken", "what others have signed is not believed: all is read"

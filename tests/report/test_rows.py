"""Runs and suites become rows, and the run of one problem becomes its story."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.report.conftest import HOSTILE, fill

from kforge.errors import RunError
from kforge.records import Problem
from kforge.report.rows import read_report
from kforge.report.stories import ONLY_BEST, read_story
from kforge.store import RunFolder, SuiteFolder, find_folder

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.store import Key


def test_a_suite_has_one_row_for_each_problem(made: SuiteFolder, signing_key: Key) -> None:
    view = read_report([made], signing_key)
    assert view.title == "made on null"
    assert view.baselines == ("eager", "compile")
    assert [row.key for row in view.problems] == [f"p{number}" for number in range(9)]
    assert view.problems[0].name == f"odd/{HOSTILE}"
    assert [row.result.state for row in view.problems] == [
        "correct", "correct", "correct", "correct", "correct", "correct", "mismatch", "broken", "unfinished",
    ]  # fmt: skip
    findings = [
        "cannot tell",
        "faster",
        "faster",
        "slower",
        "faster",
        "cannot tell",
        "mismatch",
        "broken",
        "unfinished",
    ]
    assert [row.finding for row in view.problems] == findings


def test_a_row_tells_what_the_run_folder_says(made: SuiteFolder, signing_key: Key) -> None:
    row = read_report([made], signing_key).problems[2]
    run = made.run_of(made.header.tasks[2])
    assert run is not None
    reported = run.reported()
    assert reported is not None
    assert reported.correct is not None
    assert row.result.comparisons == reported.correct.comparisons
    assert [each.state for each in row.result.steps] == [
        "generation_failure", "compilation_failure", "compilation_failure", "mismatch", "correct", "correct",
    ]  # fmt: skip
    assert row.result.roofline is not None


def test_several_runs_and_suites_make_one_report(made: SuiteFolder, signing_key: Key, tmp_path: Path) -> None:
    own = fill(tmp_path, Problem(name="softmax", source="class Model: ...\n"), 1, signing_key)
    theirs = fill(tmp_path, Problem(name="theirs", source="class Model: ...\n"), 1, None)
    view = read_report([own, made, theirs], signing_key, title="both")
    assert view.title == "both"
    assert [source.kind for source in view.sources] == ["run", "suite", "run"]
    assert [source.is_signed for source in view.sources] == [True, True, False]
    assert [row.source for row in view.problems] == [0, *[1] * 9, 2]
    assert len({row.key for row in view.problems}) == 11


def test_a_story_has_every_attempt_with_its_prompts(made: SuiteFolder, signing_key: Key) -> None:
    row = read_report([made], signing_key).problems[2]
    run = RunFolder.open(made.path / row.result.run)
    story = read_story(run, row)
    assert story.best == 5
    assert [len(each.calls) for each in story.attempts] == [1] * 6
    assert story.attempts[0].program is None
    assert story.attempts[5].before == story.attempts[4].program
    assert "error: " in story.attempts[1].log
    assert story.attempts[5].profile is not None
    assert story.attempts[0].calls[0].reply == f"Here it is. {HOSTILE}"
    assert (story.left_out, len(story.repetitions)) == ("", 2)


def test_a_short_story_has_the_best_attempt_only(made: SuiteFolder, signing_key: Key) -> None:
    rows = read_report([made], signing_key).problems
    for row, index in ((rows[2], 5), (rows[6], 1)):
        story = read_story(RunFolder.open(made.path / row.result.run), row, whole=False)
        assert [each.row.index for each in story.attempts] == [index]
        assert story.attempts[0].calls == ()
        assert story.left_out == ONLY_BEST


def test_folders_are_found_as_users_name_them(made: SuiteFolder, signing_key: Key, tmp_path: Path) -> None:
    run = fill(tmp_path, Problem(name="softmax", source="class Model: ...\n"), 1, signing_key)
    assert isinstance(find_folder(tmp_path, run.id), RunFolder)
    assert isinstance(find_folder(tmp_path, str(made.path)), SuiteFolder)
    with pytest.raises(RunError, match="no run"):
        find_folder(tmp_path, "nothing")

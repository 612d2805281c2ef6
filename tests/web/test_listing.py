"""The list on the first page says how each run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.report.conftest import PROBLEM, correct, evaluation, fill

from kforge.records import Attempt, Candidate, Outcome, Problem, Usage
from kforge.store import Key, RunFolder
from kforge.web.listing import RunList

if TYPE_CHECKING:
    from pathlib import Path

TINY = Problem(name="tiny", source=PROBLEM)


def test_a_finished_run_without_a_correct_program_says_so(tmp_path: Path) -> None:
    key = Key(tmp_path / "key")
    fill(tmp_path / "runs", TINY, 6, key)
    ((row,), count) = RunList(tmp_path / "runs", key).newest()
    assert (row.status, row.finding, row.speedup, count) == ("finished", "nothing correct", None, 1)


def test_an_unfinished_run_without_a_correct_program_has_no_result_yet(tmp_path: Path) -> None:
    key = Key(tmp_path / "key")
    fill(tmp_path / "runs", TINY, 6, key, finish=False)
    ((row,), _) = RunList(tmp_path / "runs", key).newest()
    assert (row.status, row.finding) == ("interrupted", "")


def test_a_disturbed_speedup_is_told_as_a_reason_and_not_as_a_figure(tmp_path: Path) -> None:
    key = Key(tmp_path / "key")
    header = fill(tmp_path / "others", TINY, 0, key).header
    run = RunFolder.create(tmp_path / "runs", header, key)
    program = Candidate(source="p", platform="null")
    verdict = correct(1.9, 1.2, doubt="other processes used 86% of the machine")
    with run.writing():
        run.commit(
            Attempt(
                index=0,
                phase="functional",
                candidate=program,
                evaluation=evaluation(program, verdict, TINY),
                usage=Usage(),
            )
        )
        run.finish(Outcome(stopped="1 iteration done", best=0, usage=Usage(), seconds=1.0))
    ((row,), _) = RunList(tmp_path / "runs", key).newest()
    assert (row.finding, row.speedup) == ("not measured", None)
    assert "86%" in row.reason

"""Reports as Markdown and CSV, the figures for papers, and the command."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from tests.report.conftest import HOSTILE, fill

from kforge.records import Problem
from kforge.report.figures import figures_of
from kforge.report.rows import read_report
from kforge.report.texts import markdown, table
from kforge.report.writing import WHOLE, write_report

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunKforge

    from kforge.report.views import ReportView
    from kforge.store import Key, SuiteFolder


@pytest.fixture(scope="module")
def view(made: SuiteFolder, signing_key: Key) -> ReportView:
    return read_report([made], signing_key)


def test_markdown_has_the_numbers_and_a_line_for_each_problem(view: ReportView) -> None:
    lines = markdown(view).splitlines()
    assert lines[0] == "# made on null"
    assert "| problems | 9 | 1 not finished |" in lines
    assert "| correct | 75% | 6 of 8 finished |" in lines
    assert "| faster than eager | 3 of 8 | proven; 1 slower, 2 cannot tell |" in lines
    assert any(line.startswith("| family\\_1/problem\\_1 | faster | 2.53x") for line in lines)


def test_markdown_obeys_no_foreign_text(view: ReportView) -> None:
    text = markdown(view)
    assert HOSTILE not in text
    assert "\\<img src=x onerror=alert\\(1\\)\\>" in text


def test_csv_has_one_line_for_each_problem(view: ReportView) -> None:
    rows = list(csv.DictReader(io.StringIO(table(view))))
    assert len(rows) == 9
    assert float(rows[2]["eager_speedup"]) == pytest.approx(2.53)
    assert [row["state"] for row in rows].count("correct") == 6
    assert rows[7]["eager_speedup"] == ""
    assert "\u202e" not in table(view)


def test_csv_has_no_formulas(tmp_path: Path, signing_key: Key) -> None:
    run = fill(tmp_path, Problem(name="=HYPERLINK(1)", source="class Model: ...\n"), 1, signing_key)
    rows = list(csv.DictReader(io.StringIO(table(read_report([run], signing_key)))))
    assert rows[0]["problem"] == "'=HYPERLINK(1)"


def test_figures_are_drawings_with_plain_colours(view: ReportView) -> None:
    figures = {figure.name: figure for figure in figures_of(view).drawn}
    assert figures_of(view).left_out == ()
    assert set(figures) == {
        "fast_p", "speedups_eager", "speedups_compile", "states", "cost_time", "cost_tokens", "cost_dollars",
        "roofline",
    }  # fmt: skip
    for figure in figures.values():
        text = figure.for_paper()
        assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in text
        assert "onerror=alert(1)>" not in text


def test_a_large_report_holds_less_and_says_so(
    view: ReportView, signing_key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = sum(result.attempts for result in view.results)
    assert attempts <= WHOLE
    whole, short = tmp_path / "whole.html", tmp_path / "short.html"
    assert write_report(view, whole, "auto", signing_key) == ()
    monkeypatch.setattr("kforge.report.writing.WHOLE", attempts - 1)
    (note,) = write_report(view, short, "auto", signing_key)
    assert f"because there are {attempts} attempts" in note
    assert short.stat().st_size < whole.stat().st_size
    assert "holds only the best program" in short.read_text()
    assert write_report(view, short, "none", signing_key) == ()


def test_the_command_writes_what_its_options_ask_for(
    kforge_in_process: RunKforge, made: SuiteFolder, tmp_path: Path
) -> None:
    ran = kforge_in_process("report", made.path, "-o", tmp_path / "r.html", "--figures", tmp_path / "figures", "--json")
    assert (ran.status, ran.stderr) == (0, "")
    said = json.loads(ran.stdout)
    assert (said["title"], said["problems"]) == ("made on null", 9)
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "figures" / "fast_p.svg").exists()
    ran = kforge_in_process("report", made.id, "--runs", made.path.parent, "--title", "mine")
    assert ran.status == 0
    assert ran.stdout.splitlines()[0] == "mine"
    assert "  problems" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "no run 'nothing' in "),
        (("nothing", "--runs", "nowhere"), "--runs nowhere: there is no such folder"),
    ],
)
def test_bad_input_is_one_line(kforge_in_process: RunKforge, arguments: tuple[str, ...], said: str) -> None:
    ran = kforge_in_process("report", *arguments)
    assert ran.status == 2
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_another_kind_of_file_is_refused(kforge_in_process: RunKforge, made: SuiteFolder, tmp_path: Path) -> None:
    ran = kforge_in_process("report", made.path, "-o", tmp_path / "r.pdf")
    assert ran.status == 2
    assert "ends in .html, .md, .csv" in ran.stderr

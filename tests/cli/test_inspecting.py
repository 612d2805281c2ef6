"""`show`, `runs` and `platforms`."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from kforge import platforms

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Forged, Terminal
    from tests.conftest import RunKforge


def test_show_as_json_is_what_forge_said(kforge_in_process: RunKforge, forged: Forged) -> None:
    ran = kforge_in_process("show", forged.folder.name[:15], "--json", cwd=forged.root)
    assert (ran.status, ran.stderr) == (0, "")
    assert json.loads(ran.stdout) == forged.document


def test_show_in_words(kforge: RunKforge, forged: Forged) -> None:
    ran = kforge("show", forged.folder.name, cwd=forged.root)
    assert (ran.status, ran.stderr) == (0, "")
    for word in ("generation failure", "mismatch", "optimization", "attempt 3, ", "stopped: 4 iterations done"):
        assert word in ran.stdout
    lines = ran.stdout.splitlines()
    assert "recommendation of attempt 3: do not wait" in lines
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    costs = {row[0]: row[2:6] for row in rows if row[0] in ("generation", "analysis", "total")}
    assert costs == {
        "generation": ["5", "0", "0", "$0.0000"],
        "analysis": ["1", "0", "0", "$0.0000"],
        "total": ["6", "0", "0", "$0.0000"],
    }
    grown = [row for row in rows if len(row) == 5 and row[0].isdecimal() and row[3] == "$0.0000"]
    assert [row[:2] for row in grown] == [["0", ""], ["1", ""], ["2", "attempt 2"], ["3", "attempt 3"]]
    assert grown[0][2] == "nothing correct yet"


def test_another_program_in_the_place_of_the_best_is_not_named_as_the_kernel(
    kforge_in_process: RunKforge, forged: Forged, tmp_path: Path
) -> None:
    """Cause: best.py was named beside the speedup of another program."""
    run = tmp_path / "kforge-runs" / forged.folder.name
    shutil.copytree(forged.folder, run)
    held = run / "attempts" / f"{forged.document['best']['attempt']:03d}" / "candidate.py"
    (run / "best.py").write_text("import os\n")
    said = kforge_in_process("show", run).stdout
    assert f"kernel: {held}" in said
    assert f"not the kernel: {run / 'best.py'} is another program" in said
    assert json.loads(kforge_in_process("show", run, "--json").stdout)["best"]["path"] == str(held)
    held.unlink()
    assert "kernel: no file of the run holds the program that was measured" in kforge_in_process("show", run).stdout
    assert "path" not in json.loads(kforge_in_process("show", run, "--json").stdout)["best"]


def test_a_run_begun_at_the_end_of_the_calendar_does_not_hide_the_others(
    kforge_in_process: RunKforge, forged: Forged, tmp_path: Path
) -> None:
    """Cause: the date could not be told in the user's time zone, and the list of all runs ended in a traceback."""
    runs = tmp_path / "kforge-runs"
    shutil.copytree(forged.folder, runs / forged.folder.name)
    shutil.copytree(forged.folder, runs / "late")
    header = json.loads((runs / "late" / "run.json").read_text())
    (runs / "late" / "run.json").write_text(json.dumps(header | {"created": "9999-12-31T23:59:59+00:00", "id": "late"}))
    ran = kforge_in_process("runs", environment={"TZ": "Asia/Tokyo"})
    assert ran.status == 0
    assert "tiny on null" in ran.stdout
    assert "its year is not between 1970 and 9000" in ran.stderr


def test_images_that_a_model_did_not_see_are_told(kforge_in_process: RunKforge, forged: Forged, tmp_path: Path) -> None:
    run = tmp_path / "runs" / forged.folder.name
    shutil.copytree(forged.folder, run)
    said = "images not seen: the model of the performance analysis agent refuses them, and was given text"
    assert said not in kforge_in_process("show", run).stdout
    attempt = run / "attempts" / "003" / "attempt.json"
    document = json.loads(attempt.read_text())
    document["evaluation"]["labels"].append("images_not_seen")
    attempt.write_text(json.dumps(document))
    assert said in kforge_in_process("show", run).stdout.splitlines()


def test_runs(kforge: RunKforge, forged: Forged) -> None:
    ran = kforge("runs", "--json", cwd=forged.root)
    assert (ran.status, ran.stderr) == (0, "")
    (run,) = json.loads(ran.stdout)
    best = forged.document["best"]
    assert run == {
        "id": forged.folder.name, "created": run["created"], "problem": "tiny", "platform": "null",
        "model": "scripted:script.json", "status": "finished", "stopped": "4 iterations done", "attempts": 4,
        "speedup": best["speedup"]["eager"], "finding": best["findings"]["eager"],
        **({"doubt": best["doubts"]["eager"]} if "doubts" in best else {}),
    }  # fmt: skip


def test_no_runs_yet(kforge_in_process: RunKforge) -> None:
    assert json.loads(kforge_in_process("runs", "--json").stdout) == []
    assert kforge_in_process("runs").stdout.startswith("no runs in ")


def test_a_damaged_run_does_not_hide_the_others(kforge_in_process: RunKforge, forged: Forged, tmp_path: Path) -> None:
    runs = tmp_path / "kforge-runs"
    shutil.copytree(forged.folder, runs / forged.folder.name)
    (runs / "damaged").mkdir()
    (runs / "damaged" / "run.json").write_text("{")
    ran = kforge_in_process("runs", "--json")
    assert ran.status == 0
    assert [run["id"] for run in json.loads(ran.stdout)] == [forged.folder.name]
    (note,) = ran.stderr.splitlines()
    assert note.startswith("kforge: ")
    assert "damaged" in note


def test_platforms(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "platform.toml").write_text("name = ")
    ran = kforge_in_process("platforms", "--json", "--platform-dir", folder)
    assert (ran.status, ran.stderr) == (0, "")
    rows = {row["name"]: row for row in json.loads(ran.stdout)}
    assert rows["null"]["available"] is True
    assert "reason" not in rows["null"]
    assert {"cpu", "null"} <= set(rows)
    assert rows["broken"]["available"] is False
    assert "is not valid TOML" in rows["broken"]["reason"]


def test_platforms_can_be_read_at_80_columns(terminal: Terminal) -> None:
    shown = terminal("platforms")
    assert shown.status == 0
    folders = [line for line in shown.screen if line.endswith("platforms/null")]
    assert len(folders) == 1, "no path is cut"
    names = [line.split()[0] for line in shown.screen if line and not line.startswith(" ")]
    assert names == [platform.name for platform in platforms.available(())]


def test_a_run_whose_outcome_was_edited_is_said_to_be_not_signed(
    kforge_in_process: RunKforge, forged: Forged, tmp_path: Path
) -> None:
    """Cause: nobody signed the outcome, and an edited one was shown as if it were the user's own."""
    run = tmp_path / "kforge-runs" / forged.folder.name
    shutil.copytree(forged.folder, run)
    assert "not signed by you" not in kforge_in_process("show", run).stdout
    assert "not signed by you" not in kforge_in_process("runs").stdout
    result = run / "result.json"
    result.write_text(result.read_text().replace('"median"', ' "median"'))
    assert "not signed by you" in kforge_in_process("show", run).stdout
    assert "not signed by you" in kforge_in_process("runs").stdout
    assert json.loads(kforge_in_process("show", run, "--json").stdout)["signed"] is False
    assert json.loads(kforge_in_process("runs", "--json").stdout)[0]["signed"] is False


def test_figures_of_an_edited_index_are_not_shown(kforge_in_process: RunKforge, forged: Forged, tmp_path: Path) -> None:
    """Cause: the index was believed, and its figures stood beside the signature of the files."""
    runs = tmp_path / "kforge-runs"
    shutil.copytree(forged.folder, runs / forged.folder.name)
    before, (listed,) = kforge_in_process("runs").stdout, json.loads(kforge_in_process("runs", "--json").stdout)
    with closing(sqlite3.connect(runs / "index.sqlite")) as index, index:
        index.execute(
            "UPDATE runs SET speedup_low = 48.0, speedup_median = 49.0, speedup_high = 50.0, finding = 'faster', "
            "doubt = NULL, problem = 'attention'"
        )
    assert json.loads(kforge_in_process("runs", "--json").stdout) == [listed]
    assert kforge_in_process("runs").stdout == before

"""`kforge export`: what it writes, and what it refuses."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from kforge.cli.results.commands import ExportFormat
from kforge.export import FORMATS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Forged
    from tests.conftest import RunKforge


def test_the_best_program_of_a_run_becomes_a_package(
    kforge_in_process: RunKforge, forged: Forged, tmp_path: Path
) -> None:
    ran = kforge_in_process("export", forged.folder, "-o", tmp_path / "out")
    assert ran.status == 0, ran
    assert "tiny on null as package" in ran.stdout
    kernel = (tmp_path / "out" / "tiny_kernel" / "kernel.py").read_text()
    assert kernel == (forged.folder / "best.py").read_text()
    again = kforge_in_process("export", forged.folder, "-o", tmp_path / "out")
    assert (again.status, again.stderr.count("\n")) == (2, 1)
    assert "is not an empty folder" in again.stderr


def test_json_lists_the_files(kforge_in_process: RunKforge, forged: Forged, tmp_path: Path) -> None:
    ran = kforge_in_process("export", forged.folder, "-o", tmp_path / "out", "--as", "package", "--json")
    document = json.loads(ran.stdout)
    assert (document["format"], document["folder"]) == ("package", str(tmp_path / "out"))
    assert str(tmp_path / "out" / "README.md") in document["files"]


def test_a_run_of_others_needs_trust(kforge_in_process: RunKforge, forged: Forged, tmp_path: Path) -> None:
    theirs = tmp_path / "handed" / forged.folder.name
    shutil.copytree(forged.folder, theirs)
    (theirs / "signature").unlink()
    ran = kforge_in_process("export", theirs, "-o", tmp_path / "out")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "was not made by you on this machine" in ran.stderr
    assert not (tmp_path / "out").exists()
    assert kforge_in_process("export", theirs, "-o", tmp_path / "out", "--trust").status == 0


def test_a_platform_folder_of_others_needs_its_own_flag_as_in_resume(
    kforge_in_process: RunKforge, forged: Forged, tmp_path: Path, root: Path
) -> None:
    """Cause: `export --trust` imported the adapters of every folder that the run named; `resume --trust` refuses."""
    planted, trace = tmp_path / "planted" / "null", tmp_path / "imported"
    shutil.copytree(root / "src" / "kforge" / "platforms" / "null", planted)
    (planted / "adapter.py").write_text(f"open({str(trace)!r}, 'w')\n")
    theirs = tmp_path / "handed" / forged.folder.name
    shutil.copytree(forged.folder, theirs)
    document = json.loads((theirs / "run.json").read_text())
    document["options"]["platform_dirs"] = str(planted.parent)
    (theirs / "run.json").write_text(json.dumps(document))
    ran = kforge_in_process("export", theirs, "-o", tmp_path / "out", "--trust")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert f"if you want that, give --platform-dir {planted.parent}" in ran.stderr
    assert not trace.exists()
    (planted / "adapter.py").write_text("")
    ran = kforge_in_process("export", theirs, "-o", tmp_path / "out", "--trust", "--platform-dir", planted.parent)
    assert "a folder of platforms" not in ran.stderr


def test_a_run_without_a_correct_program_is_refused_with_status_1(
    kforge_in_process: RunKforge, forged: Forged, tmp_path: Path
) -> None:
    run = tmp_path / "handed" / forged.folder.name
    shutil.copytree(forged.folder, run)
    for attempt in ("001", "002", "003"):
        shutil.rmtree(run / "attempts" / attempt, ignore_errors=True)
    (run / "result.json").unlink()
    ran = kforge_in_process("export", run, "-o", tmp_path / "out", "--trust")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert "has no correct program to export" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_the_command_has_every_format() -> None:
    assert [form.value for form in ExportFormat] == list(FORMATS)

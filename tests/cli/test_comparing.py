"""`kforge compare`: two runs side by side, and what is said about their speed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Answers, Forged
    from tests.conftest import RunKforge


@pytest.fixture(scope="module")
def other(forged: Forged, answers: Answers, clean_environment: dict[str, str]) -> Path:
    """A second run of the same problem, with another best program."""
    import subprocess
    import sys

    (forged.root / "other.json").write_text(json.dumps([answers.slow]))
    done = subprocess.run(
        [sys.executable, "-m", "kforge", "forge", "tiny.py", "-p", "null", "-m", "scripted:other.json", "-n", "1",
         "--no-compile-baseline", "--replications", "0", "--json", "-q", "-o", "others"],
        cwd=forged.root, env=clean_environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.stderr == ""  # -q
    return forged.root / json.loads(done.stdout)["run"]


def test_two_runs_stand_side_by_side(kforge_in_process: RunKforge, forged: Forged, other: Path) -> None:
    ran = kforge_in_process("compare", other, forged.folder)
    assert ran.status == 0, ran
    rows = {line.split("│")[1].strip(): line for line in ran.stdout.splitlines() if "│" in line}
    assert {"problem", "state", "attempts", "best", "a call", "over eager", "cost", "time"} <= rows.keys()
    assert "attempt 0" in rows["best"]
    assert "attempt 3" in rows["best"]
    assert "not measured head to head: the speedups were measured at different times" in ran.stdout
    assert "\n-        return waited(torch.relu(x + self.shift))\n" in ran.stdout
    assert "\n+        return (x + self.shift).relu_()\n" in ran.stdout


def test_a_measured_difference_is_said_to_be_one(kforge_in_process: RunKforge, forged: Forged, other: Path) -> None:
    ran = kforge_in_process("compare", other, forged.folder, "--measure", "--json")
    document = json.loads(ran.stdout)
    assert document["head_to_head"]["finding"] == "faster"
    assert document["speed"].startswith("measured head to head: ")
    assert len(document["runs"]) == 2
    assert "relu_" in document["diff"]


def test_a_run_beside_itself_has_no_difference(kforge_in_process: RunKforge, forged: Forged) -> None:
    ran = kforge_in_process("compare", forged.folder, forged.folder)
    assert "no difference in speed: the best programs are the same" in ran.stdout
    refused = kforge_in_process("compare", forged.folder, forged.folder, "--measure")
    assert (refused.status, refused.stderr.count("\n")) == (2, 1)


def test_runs_of_others_are_not_run(kforge_in_process: RunKforge, forged: Forged, other: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs" / forged.folder.name
    shutil.copytree(forged.folder, theirs)
    (theirs / "signature").unlink()
    assert "not signed by you" in kforge_in_process("compare", other, theirs).stdout
    refused = kforge_in_process("compare", other, theirs, "--measure")
    assert (refused.status, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "add --trust" in refused.stderr


def test_an_unknown_run_is_one_line(kforge_in_process: RunKforge, forged: Forged) -> None:
    ran = kforge_in_process("compare", forged.folder, "none")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)

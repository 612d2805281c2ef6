"""`profile --import`: exports made elsewhere, alone and beside a problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import RunKforge

DATA = Path(__file__).parents[1] / "profiling" / "data"


def test_a_file_alone_needs_no_problem_and_no_device(kforge: RunKforge) -> None:
    ran = kforge("profile", "--import", DATA / "ncu_raw_softmax.csv")
    assert (ran.status, ran.stderr) == (0, "")
    assert ran.stdout.startswith(
        "Imported from         Nsight Compute, on NVIDIA H200\nBottleneck            memory bound"
    )


def test_several_files_as_one_document(kforge: RunKforge) -> None:
    files = ("--import", DATA / "ncu_raw_softmax.csv", "--import", DATA / "nsys_stats.csv")
    ran = kforge("profile", *files, "--calls", "100", "--json")
    assert ran.status == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["tool"] == "Nsight Compute and Nsight Systems"
    assert document["seconds"] == pytest.approx(22.5e-6)
    assert document["bottleneck"] == "memory bound: L2 cache at 76% of peak"
    assert document["kernels"][0]["figures"]["registers"] == 31
    assert "roofline" not in document, "there is no problem that it could be of"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n1,2\n", "it is not an export of a profiler that kforge knows: ncu --csv"),
        (b"SQLite format 3\x00", "it is an SQLite database, not an export"),
        (b"", "it is not an export of a profiler that kforge knows"),
    ],
    ids=["other csv", "database", "empty"],
)
def test_anything_else_is_refused(kforge_in_process: RunKforge, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "trace").write_bytes(content)
    ran = kforge_in_process("profile", "--import", "trace")
    assert (ran.status, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"kforge: cannot import trace: {said}")


def test_files_that_are_not_there(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    ran = kforge_in_process("profile", "--import", "gone.csv")
    assert (ran.status, ran.stderr) == (2, "kforge: cannot read gone.csv: No such file or directory\n")
    ran = kforge_in_process("profile", "--import", tmp_path)
    assert (ran.status, ran.stderr) == (2, f"kforge: cannot read {tmp_path}: Is a directory\n")


def test_neither_a_program_nor_an_export(kforge_in_process: RunKforge, tiny: Path) -> None:
    for arguments in ((), (tiny,)):
        ran = kforge_in_process("profile", *arguments)
        assert (ran.status, ran.stdout) == (2, "")
        assert ran.stderr == "kforge: profile needs a PROBLEM and a CANDIDATE, or exports with --import\n"


def test_a_roofline_of_another_kind_of_device_is_refused(kforge_in_process: RunKforge, tiny: Path) -> None:
    ran = kforge_in_process("profile", tiny, "-p", "null", "--import", DATA / "nsys_stats.csv")
    assert (ran.status, ran.stdout) == (2, "")
    assert "these exports cannot be from a program for the platform null: leave the PROBLEM out" in ran.stderr


def test_the_profile_is_drawn_into_a_file(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    ran = kforge_in_process("profile", "--import", DATA / "nsys_stats.csv", "--image-out", "profile.png")
    assert ran.status == 0
    assert ran.stdout.startswith("Imported from         Nsight Systems")
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_an_image_that_cannot_be_written(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    place = tmp_path / "gone" / "profile.png"
    ran = kforge_in_process("profile", "--import", DATA / "nsys_stats.csv", "--image-out", place)
    assert (ran.status, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[-1] == f"kforge: cannot write {place}: No such file or directory"


def test_a_candidate_is_drawn_with_its_roofline(kforge_in_process: RunKforge, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "candidate.py").write_text(tiny.read_text().replace("class Model(", "class ModelNew("))
    ran = kforge_in_process("profile", tiny, "candidate.py", "-p", "null", "--image-out", "profile.png")
    assert ran.status == 0, ran.stderr
    assert (tmp_path / "profile.png").stat().st_size > 10_000

"""Terminals that know only ASCII, and names that are not UTF-8: something readable is printed, never a traceback."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kforge.cli.output.encoding import spell_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Forged
    from tests.conftest import RunKforge

ASCII = {
    "locale C": {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "streams": {"PYTHONIOENCODING": "ascii"},
}
BYTES = os.fsdecode(b"caf\xe9")
"""A name in Latin-1."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 on other file systems")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_cannot_be_encoded_is_spelled(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, stream, io.TextIOWrapper(written, encoding="ascii"))
    spell_unprintable()
    getattr(sys, stream).write(f"3 µs → {BYTES} … 漢\n")
    getattr(sys, stream).flush()
    assert written.getvalue().decode("ascii") == "3 us -> caf\\xe9 ... \\u6f22\n"


def test_utf8_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    spell_unprintable()
    sys.stdout.write(f"3 µs → {BYTES} 漢\n")
    sys.stdout.flush()
    assert written.getvalue().decode() == "3 µs → caf\\xe9 漢\n"


@pytest.mark.parametrize("terminal", ASCII.values(), ids=ASCII)
def test_tables_on_an_ascii_terminal(kforge: RunKforge, forged: Forged, terminal: dict[str, str]) -> None:
    for arguments in (("platforms",), ("runs",), ("show", forged.folder.name)):
        ran = kforge(*arguments, cwd=forged.root, environment=terminal)
        assert (ran.status, ran.stderr) == (0, ""), arguments
        assert ran.stdout.isascii()
    assert "+---" in ran.stdout


def test_an_evaluation_on_an_ascii_terminal_of_files_whose_names_are_bytes(
    kforge: RunKforge, tiny: Path, tmp_path: Path, candidate: Callable[..., str]
) -> None:
    folder = tmp_path / BYTES
    folder.mkdir()
    problem, program = tiny.rename(folder / f"{BYTES}.py"), folder / "program.py"
    program.write_text("# é\n" + candidate("torch.relu(x)"), encoding="utf-8")
    arguments = (problem.name, program.name, "-p", "null", "--no-compile-baseline")
    ran = kforge("eval", *arguments, cwd=folder, environment=ASCII["locale C"])
    assert ran.status == 1, ran
    assert "caf\\xe9 on null: program.py" in ran.stderr
    assert ran.stdout.startswith("mismatch: ")
    assert ran.stdout.isascii()


@pytest.mark.parametrize("name", [BYTES, pytest.param("naïve", marks=pytest.mark.volume)])
def test_a_run_below_a_folder_whose_name_is_not_ascii(
    kforge: RunKforge, tiny: Path, tmp_path: Path, script: Callable[..., str], name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    begun = ("forge", tiny, "-p", "null", "-m", script("no program", "none again"), "-n", "1")
    assert kforge(*begun, cwd=folder, environment=ASCII["streams"]).status == 1
    listed = kforge("runs", cwd=folder, environment=ASCII["streams"])
    assert (listed.status, listed.stderr) == (0, "")
    assert "tiny" in listed.stdout
    shown = kforge("show", "2", cwd=folder, environment=ASCII["streams"])
    assert (shown.status, shown.stderr) == (0, "")
    assert "na\\xefve" in shown.stdout or "caf\\xe9" in shown.stdout


def test_bytes_that_would_have_to_be_recorded_are_one_clear_line(kforge: RunKforge, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / BYTES).write_text("an answer")
    ran = kforge("forge", tiny, "-p", "null", "-m", f"scripted:{BYTES}")
    assert ran.status == 2
    assert (
        ran.stderr.splitlines()[-1]
        == "kforge: a name of a file or folder here is not UTF-8, and cannot be recorded: rename it"
    )


def test_a_file_that_is_not_there(kforge: RunKforge) -> None:
    ran = kforge("eval", Path(f"{BYTES}.py"), "program.py", "-p", "null")
    assert (ran.status, ran.stderr) == (2, "kforge: caf\\xe9.py: no such file\n")

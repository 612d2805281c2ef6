"""Files of others that are not what they should be: one line, no traceback, no hang. (cause: receipts)"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kforge import durable
from kforge.problems import Task
from kforge.records import Problem
from kforge.store import SuiteFolder, SuiteHeader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Forged
    from tests.conftest import RunKforge


@pytest.fixture
def handed_over(forged: Forged, tmp_path: Path) -> Callable[..., Path]:
    """A finished run in the folder of runs, as an edit of its header leaves it."""

    def make(**edits: Any) -> Path:
        run = tmp_path / "kforge-runs" / forged.folder.name
        shutil.copytree(forged.folder, run)
        header = json.loads((run / "run.json").read_text())
        header["options"] |= edits.pop("options", {})
        (run / "run.json").write_text(json.dumps(header | edits))
        return run

    return make


@pytest.mark.parametrize("created", ["yesterday", "9999-12-31T23:59:59-23:59"])
def test_a_run_that_was_begun_at_no_time(kforge_in_process: RunKforge, handed_over: Any, created: str) -> None:
    """Cause: `created` was any text, and `runs` parsed it."""
    handed_over(created=created)
    ran = kforge_in_process("runs")
    assert ran.status == 0
    assert "created: it is not a date and time" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_options_that_kforge_does_not_have(kforge_in_process: RunKforge, handed_over: Any) -> None:
    """Cause: the options of a header went to pydantic, and its error to the terminal."""
    run = handed_over(options={"colour": "red", "model": "exchange", "analyst": "exchange"})
    ran = kforge_in_process("resume", run, "--trust")
    assert (ran.status, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert "is damaged: its option colour: is not known" in ran.stderr


def test_a_suite_without_options(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    """Cause: `runs` and `show` took the options of a suite's header for granted."""
    header = SuiteHeader.new(suite="empty", workload="", tasks=(), options={}, platform_dirs=())
    SuiteFolder.create(tmp_path / "kforge-runs", header)
    for command in ("runs", "show"):
        ran = kforge_in_process(command)
        assert (ran.status, ran.stderr) == (0, "")
        assert "not signed by you" in ran.stdout


def test_a_file_of_8_tib(kforge_in_process: RunKforge, handed_over: Any) -> None:
    """Cause: a sparse file costs its sender nothing, and was read whole."""
    run = handed_over()
    os.truncate(run / "run.json", durable.LARGEST + 1)
    ran = kforge_in_process("show", run)
    assert (ran.status, ran.stderr.count("\n")) == (2, 1)
    assert "run.json: it is larger than 256 MiB" in ran.stderr


def test_two_folders_with_one_id(kforge_in_process: RunKforge, handed_over: Any) -> None:
    """Cause: rows of the index are named by the header's id, and two of the same name ended in a traceback."""
    run = handed_over()
    shutil.copytree(run, run.with_name("copy"))
    ran = kforge_in_process("runs")
    assert ran.status == 0
    assert ran.stdout.count("tiny on null") == 1
    assert "copy is left out: its run.json names run" in ran.stderr


def test_a_pipe_that_nobody_writes_to(kforge_in_process: RunKforge, tiny: Path, tmp_path: Path) -> None:
    """Cause: a pipe was opened like a file, and waited for a writer."""
    os.mkfifo(tmp_path / "pipe.py")
    ran = kforge_in_process("eval", tiny, tmp_path / "pipe.py", "-p", "null")
    assert (ran.status, ran.stderr.count("\n")) == (2, 1)
    assert "pipe.py: it is not a file" in ran.stderr


PIPES = [
    ("eval", "{pipe}", "program.py", "-p", "null"),
    ("profile", "--import", "{pipe}"),
    ("forge", "tiny.py", "-p", "null", "-m", "scripted:{pipe}"),
    ("forge", "tiny.py", "-p", "null", "-m", "replay:{pipe}"),
    ("forge", "tiny.py", "-p", "null", "-m", "exchange", "--reference", "{pipe}"),
    ("verify", "{pipe}"),
    ("suite", "{pipe}", "-p", "null", "-m", "exchange"),
]


@pytest.mark.parametrize("command", PIPES, ids=" ".join)
def test_no_command_waits_for_a_pipe(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Cause: every room opened files of others in its own way, and most of them like ordinary files."""
    os.mkfifo(tmp_path / "pipe")
    assert tiny.name == "tiny.py"
    ran = kforge_in_process(*(part.format(pipe=tmp_path / "pipe") for part in command))
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr


def a_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("example/kernel.py", a_pipe, "example cannot be read: it is not a file"),
        ("platform.toml", lambda path: path.write_text("name = " + "[" * 100_000), "nested too deeply"),
        ("platform.toml", lambda path: path.write_text(f"preference = 0x{'f' * 5000}"), "more than 64 bits"),
        ("platform.toml", lambda path: os.truncate(path, 2**40), "it is larger than 1 MiB"),
    ],
)
def test_a_platform_of_others_is_listed_with_what_is_wrong(
    kforge_in_process: RunKforge, tmp_path: Path, root: Path, name: str, spoil: Callable[[Path], object], said: str
) -> None:
    shutil.copytree(root / "src" / "kforge" / "platforms" / "null", tmp_path / "odd")
    spoil(tmp_path / "odd" / name)
    ran = kforge_in_process("platforms", "--platform-dir", tmp_path / "odd")
    assert (ran.status, ran.stderr) == (0, "")
    assert said in ran.stdout


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (None, "suite.toml: cannot be read: it is not a file"),
        ("a = " + "[" * 100_000, "is not valid TOML: it is nested too deeply"),
        ("problems.tiny = [1]", "'problems' must hold a table for each problem"),
        (f"[problems.tiny]\nsmall = {{ ROWS = 0x{'f' * 5000} }}", "more than 64 bits"),
    ],
)
def test_the_manifest_of_a_suite_of_others(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, manifest: str | None, said: str
) -> None:
    (tmp_path / "problems").mkdir()
    tiny.rename(tmp_path / "problems" / "tiny.py")
    toml = tmp_path / "problems" / "suite.toml"
    if manifest is None:
        os.mkfifo(toml)
    else:
        toml.write_text(manifest)
    ran = kforge_in_process("suite", tmp_path / "problems", "-p", "null", "-m", "exchange")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr
    assert said in ran.stderr


@pytest.mark.parametrize("names", [["a\0b"], ["x" * 300], ["../x"], ["a", "a"]], ids=["zero", "long", "up", "twice"])
def test_the_problems_of_a_suite_of_others_have_names_of_folders(
    kforge_in_process: RunKforge, tmp_path: Path, names: list[str]
) -> None:
    header = json.loads(SuiteHeader.new(suite="s", workload="", tasks=(), options={}, platform_dirs=()).to_json())
    header["tasks"] = [{"name": name, "family": "", "failure": "no problem"} for name in names]
    folder = tmp_path / "kforge-runs" / header["id"]
    folder.mkdir(parents=True)
    (folder / "suite.json").write_text(json.dumps(header))
    for command, status in ((("runs",), 0), (("show",), 2), (("resume", folder, "--trust"), 2)):
        ran = kforge_in_process(*command)
        assert (ran.status, ran.stderr.count("\n")) == (status, 1), ran.stderr
        assert "suite.json is damaged: tasks" in ran.stderr


def test_one_suite_that_cannot_be_looked_at_does_not_hide_the_rest(
    kforge_in_process: RunKforge, handed_over: Any, tmp_path: Path
) -> None:
    """Cause: a path of 8000 letters is an error of the system, where only damaged files were thought of."""
    handed_over()
    tasks = (Task(name="/".join(["x" * 200] * 40), family="", problem=Problem(name="n", source="")),)
    header = SuiteHeader.new(suite="deep", workload="", tasks=tasks, options={}, platform_dirs=())
    SuiteFolder.create(tmp_path / "kforge-runs", header)
    ran = kforge_in_process("runs")
    assert (ran.status, ran.stderr.count("\n")) == (0, 1)
    assert "is left out: File name too long" in ran.stderr
    assert "tiny on null" in ran.stdout


@pytest.mark.parametrize("part", ["attempts", "exchange", "lock", "attempts/000/attempt.json", "result.json"])
def test_a_run_with_pipes_in_it_is_refused_in_one_line(
    kforge_in_process: RunKforge, handed_over: Any, part: str
) -> None:
    run = handed_over(options={"model": "exchange", "analyst": "exchange"})
    place = run / part
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    os.mkfifo(place)
    ran = kforge_in_process("resume", run, "--trust")
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr


def test_a_command_that_is_advised_may_be_copied_into_a_shell(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path
) -> None:
    root = tmp_path / "my runs; $(touch hacked)"
    ran = kforge_in_process("forge", tiny, "-p", "null", "-m", "exchange", "--no-compile-baseline", "-o", root)
    assert ran.status == 75
    advised = ran.stderr.strip().rpartition("and then run: ")[2]
    assert shlex.split(advised) == ["kforge", "resume", str(next(root.glob("*/run.json")).parent)]

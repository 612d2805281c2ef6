"""Files of others that are not what they should be: one line, no traceback, no hang. (cause: receipts)"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kforge import durable
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
    assert "created: Value error, it is not a date and time" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_options_that_kforge_does_not_have(kforge_in_process: RunKforge, handed_over: Any) -> None:
    """Cause: the options of a header went to pydantic, and its error to the terminal."""
    run = handed_over(options={"colour": "red", "model": "exchange", "analyst": "exchange"})
    ran = kforge_in_process("resume", run, "--trust")
    assert (ran.status, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert "is damaged: its option colour: Extra inputs are not permitted" in ran.stderr


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
    assert "copy is left out: its run.json is of run" in ran.stderr


def test_a_pipe_that_nobody_writes_to(kforge_in_process: RunKforge, tiny: Path, tmp_path: Path) -> None:
    """Cause: a pipe was opened like a file, and waited for a writer."""
    os.mkfifo(tmp_path / "pipe.py")
    ran = kforge_in_process("eval", tiny, tmp_path / "pipe.py", "-p", "null")
    assert (ran.status, ran.stderr.count("\n")) == (2, 1)
    assert "pipe.py: it is not a file" in ran.stderr

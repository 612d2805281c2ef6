"""SIGKILL at any point loses nothing that was finished, repeats nothing, and never leaves a torn record."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kforge.records import Candidate, Evaluation
from kforge.store import RunFolder
from kforge.store.folder import run_paths

STAGES = {"candidate": Candidate, "evaluation": Evaluation}


def write(mode: str, base: Path) -> None:
    subprocess.run([sys.executable, Path(__file__).with_name("killed_writer.py"), mode, base], check=True, timeout=120)


def check_killed(root: Path, said: list[str]) -> None:
    """Everything that the killed writer said was finished is there, whole."""
    runs = run_paths(root)
    assert len(runs) == 1 or "created" not in said
    for path in runs:
        folder = RunFolder.open(path)
        attempts = folder.attempts()
        assert folder.status() == ("finished" if folder.outcome() else "interrupted")
        for line in said:
            match line.split():
                case ["commit", index]:
                    assert attempts[int(index)].index == int(index)
                case ["stage", index, name]:
                    assert folder.stage(int(index), name, STAGES[name]) is not None
                case ["finish"]:
                    assert folder.outcome() is not None
        for attempt in attempts:
            assert attempt.candidate == folder.stage(attempt.index, "candidate", Candidate)
        if folder.best_path is not None:
            assert folder.best_path.read_bytes().startswith(b"# candidate ")


@pytest.mark.parametrize(
    "mode", ["some", *(pytest.param(mode, marks=pytest.mark.volume) for mode in ("points", "random"))]
)
def test_a_killed_run_resumes_to_the_same_result(mode: str, tmp_path: Path, tree: Any) -> None:
    write(mode, tmp_path)
    killed = sorted(tmp_path.glob("*.acks"))
    assert len(killed) >= 20
    for acks in killed:
        check_killed(acks.with_suffix(""), acks.read_text().splitlines())
    if mode != "random":
        ends = {(acks.read_text().splitlines() or ["nothing"])[-1] for acks in killed}
        assert {"nothing", "created", "stage 0 candidate", "commit 0", "commit 2", "finish"} <= ends

    write("resume", tmp_path)
    results = []
    for acks in killed:
        said = Counter(line for line in acks.read_text().splitlines() if line != "created")
        assert not {line for line, times in said.items() if times > 1}, "something finished was done again"
        (path,) = run_paths(acks.with_suffix(""))
        result = tree(path)
        del result["run.json"]  # its id and time are its own
        results.append(result)
    assert results[0]["best.py"].startswith(b"# candidate 1")
    assert "attempts/002/attempt.json" in results[0]
    assert all(result == results[0] for result in results)

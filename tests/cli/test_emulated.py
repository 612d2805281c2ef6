"""Platforms that emulate their device: programs are verified and labelled, and no command speaks of their speed."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from kforge import platforms
from kforge.evaluation import Judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import RunKforge


@pytest.fixture
def stand_in(small_platform: Callable[[str], Path]) -> Path:
    folder = small_platform("standin")
    (folder / "adapter.py").write_text(
        "from kforge import platforms\n"
        "class Adapter(platforms.Adapter):\n"
        "    def synchronize(self): pass\n"
        "    def emulated(self): return 'it ran elsewhere'\n"
    )
    return folder


def test_a_run_stops_at_the_first_correct_program_and_no_command_shows_a_speed(
    kforge_in_process: RunKforge, stand_in: Path, script: Callable[..., str]
) -> None:
    example = stand_in / "example"
    kernel = f"```python\n{(example / 'kernel.py').read_text()}```"
    wrong = kernel.replace("relu_()", "neg_()")
    options = ("-p", "standin", "--platform-dir", stand_in, "--no-compile-baseline")
    model = script(wrong, kernel, kernel)
    ran = kforge_in_process("forge", example / "reference.py", "-m", model, "-n", "5", *options)
    assert ran.status == 0, ran
    assert "best: attempt 1, correct; not timed: it ran elsewhere" in ran.stdout
    (labels,) = re.findall(r"^labels: (.*)$", ran.stdout, re.MULTILINE)
    assert set(labels.split(", ")) - {"too_quick_to_time"} == {"untraced", "emulated"}, "a fast host may add a label"
    assert "stopped: a program is correct, and its speed cannot be measured: it ran elsewhere" in ran.stdout
    assert "eager," not in ran.stdout
    assert "correct, not timed" in kforge_in_process("runs").stdout
    shown = json.loads(kforge_in_process("runs", "--json").stdout)
    (run,) = shown if isinstance(shown, list) else shown["runs"]
    document = json.loads(kforge_in_process("show", run["id"], "--json").stdout)
    assert [attempt["state"] for attempt in document["attempts"]] == ["mismatch", "correct"]
    assert document["best"]["untimed"] == "it ran elsewhere"
    assert len(document["replication"]) == 1, "a second repetition would only narrow the interval of a speed"
    assert "speedup" not in document["best"]


def test_nothing_is_told_about_the_rates_of_an_emulated_device(stand_in: Path, tmp_path: Path) -> None:
    """Cause: authors of kernels for a GPU were told the cores and caches of the host that emulates it."""
    environment = {"PATH": os.environ["PATH"]}
    with Judge(platforms.load_folder(stand_in), cache=tmp_path / "cache", environment=environment) as judge:
        facts = judge.facts()
    assert facts.peaks is None
    assert facts.text == "Device  not on this machine, so its rates are not known: it ran elsewhere"


def test_an_emulated_receipt_is_verified_again_without_a_speed(
    kforge_in_process: RunKforge, stand_in: Path, tmp_path: Path
) -> None:
    example, receipt = stand_in / "example", tmp_path / "receipt.json"
    ran = kforge_in_process(
        "eval", example / "reference.py", example / "kernel.py", "-p", "standin", "--platform-dir", stand_in,
        "--receipt", receipt,
    )  # fmt: skip
    assert ran.status == 0, ran
    assert "; not timed: it ran elsewhere" in ran.stdout
    ran = kforge_in_process("verify", receipt, "--platform-dir", stand_in)
    assert ran.status == 0, ran
    assert "repeated: correct, not timed: it ran elsewhere" in ran.stdout
    forged = json.loads(receipt.read_text())
    forged["evaluation"]["receipt"]["samples"] = {"eager": [1.0], "candidate": [0.1]}
    receipt.write_text(json.dumps(forged))
    ran = kforge_in_process("verify", receipt, "--platform-dir", stand_in)
    assert (ran.status, "it was not timed, and holds samples" in ran.stdout) == (1, True), ran

"""`trajectories`: the attempts of finished runs as JSON Lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Answers, Forged
    from tests.conftest import RunKforge


def test_a_line_for_each_attempt_with_messages_replies_and_rewards(
    kforge_in_process: RunKforge, forged: Forged, answers: Answers, tmp_path: Path
) -> None:
    ran = kforge_in_process("trajectories", forged.folder)
    assert (ran.status, ran.stderr) == (0, "")
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert [line["done"] for line in lines] == [False, False, False, True]
    assert [[call["agent"] for call in line["calls"]] for line in lines] == [
        ["generation"] * 2, ["generation"], ["generation"], ["analysis", "generation"],
    ]  # fmt: skip
    said = [call["reply"]["content"] for line in lines for call in line["calls"]]
    assert said == [*[answers.no_program] * 2, answers.wrong, answers.slow, answers.advice, answers.fast]
    assert all(call["messages"][0]["role"] == "system" for line in lines for call in line["calls"])
    assert [line["observation"]["state"] for line in lines[:3]] == ["generation_failure", "mismatch", "correct"]
    assert [line["reward"] for line in lines[:2]] == [0.0, 0.0]
    for line in lines[2:]:
        eager = line["observation"]["speedup"]["eager"]
        disturbed = "eager" in line["observation"].get("doubts", {})
        assert line["reward"] == (0.0 if disturbed else eager["low"])
    assert sum(line["best"] for line in lines) == 1
    assert "source" not in lines[0]

    counted = kforge_in_process("trajectories", forged.folder, "--to", tmp_path / "t.jsonl", "--json")
    assert json.loads(counted.stdout) == {"file": str(tmp_path / "t.jsonl"), "runs": 1, "attempts": 4}
    assert (tmp_path / "t.jsonl").read_text() == ran.stdout


def test_a_run_that_is_not_finished_has_none(kforge_in_process: RunKforge, tiny: Path) -> None:
    begun = kforge_in_process("forge", tiny, "-p", "null", "-m", "exchange", "-n", "1", "--json")
    ran = kforge_in_process("trajectories", json.loads(begun.stdout)["run"])
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "is not finished" in ran.stderr

"""`exchange`: questions listed, shown and answered; batches over a suite; folders that move between machines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kforge.models import Exchange

if TYPE_CHECKING:
    from tests.cli.conftest import Answers
    from tests.conftest import Ran, RunKforge

QUICK = ("-p", "null", "--no-compile-baseline", "--replications", "0")
PROBLEMS = ("one/a", "one/b", "two/c")


@pytest.fixture
def waiting(kforge_in_process: RunKforge, tiny: Path) -> Path:
    """A run that waits for its first program."""
    ran = kforge_in_process("forge", tiny, *QUICK, "-m", "exchange", "-n", "1", "--json")
    assert ran.status == 75, ran.stderr
    return Path(json.loads(ran.stdout)["run"])


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """Three problems that differ, so that their questions do."""
    suite = tmp_path / "ours"
    for number, name in enumerate(PROBLEMS):
        (suite / name).parent.mkdir(parents=True, exist_ok=True)
        (suite / f"{name}.py").write_text(tiny.read_text().replace("ROWS = 16", f"ROWS = {16 + number}"))
    return suite


def refused(ran: Ran) -> str:
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran
    return ran.stderr


def test_one_question_is_listed_shown_and_answered(
    kforge_in_process: RunKforge, waiting: Path, answers: Answers, tmp_path: Path
) -> None:
    (listed,) = json.loads(kforge_in_process("exchange", "list", "--json").stdout)
    assert (listed["run"], listed["question"], listed["agent"]) == (str(waiting), "001-generation", "generation")
    assert listed["state"] == "waiting"
    shown = kforge_in_process("exchange", "show", waiting)
    assert (shown.status, shown.stdout) == (0, Path(listed["prompt"]).read_text())

    (tmp_path / "empty.md").write_text("\n \n")
    assert "empty.md is empty" in refused(kforge_in_process("exchange", "answer", waiting, "-f", tmp_path / "empty.md"))
    assert "there are 001-generation" in refused(
        kforge_in_process("exchange", "answer", waiting, "002-analysis", "-f", tmp_path / "empty.md")
    )
    (tmp_path / "answer.md").write_text(answers.fast)
    answered = kforge_in_process("exchange", "answer", waiting, "001-generation", "-f", tmp_path / "answer.md")
    assert (answered.status, answered.stdout) == (0, "answered: 001-generation\n")
    assert answered.stderr == f"kforge: to go on: kforge resume {waiting}\n"
    assert "waits for no reply: it is answered" in refused(
        kforge_in_process("exchange", "answer", waiting, "001-generation", "-f", tmp_path / "answer.md")
    )
    assert kforge_in_process("exchange", "list").stdout == "no question waits for a reply\n"
    assert "001-generation: answered" in kforge_in_process("exchange", "list", waiting, "--all").stdout
    assert kforge_in_process("resume", waiting).status == 0


def test_a_prompt_that_is_a_link_is_not_shown(kforge_in_process: RunKforge, waiting: Path, tmp_path: Path) -> None:
    (prompt,) = (waiting / "exchange").glob("*.prompt.md")
    (tmp_path / "secret").write_text("a key")
    prompt.unlink()
    prompt.symlink_to(tmp_path / "secret")
    assert "symbolic link" in refused(kforge_in_process("exchange", "show", waiting))
    assert "symbolic link" in refused(kforge_in_process("exchange", "show", waiting, "--into", tmp_path / "carried"))


def told(document: dict[str, Any]) -> dict[str, Any]:
    """What must be the same whether the answers came by file or from a recording."""
    return {each["name"]: (each["state"], each["attempts"]) for each in document["problems"]}


@pytest.mark.slow
def test_a_suite_that_moves_twice_with_replies_out_of_order_ends_as_its_replay_does(
    kforge_in_process: RunKforge, folder: Path, answers: Answers, tmp_path: Path
) -> None:
    here, there = ({"XDG_STATE_HOME": str(tmp_path / name)} for name in ("here", "there"))
    begun = kforge_in_process("suite", folder, *QUICK, "-m", "exchange", "-n", "2", "--json", environment=here)
    assert begun.status == 75, begun.stderr
    suite = Path(json.loads(begun.stdout)["run"])
    assert "waiting for 3 replies, 0 of 3 problems done" in kforge_in_process("runs", environment=here).stdout

    # the first round: all prompts in one folder, answered in another order, one of them too late
    carried = tmp_path / "carried"
    assert kforge_in_process("exchange", "show", suite, "--into", carried).status == 0
    assert sorted(p.relative_to(carried).as_posix() for p in carried.rglob("*.md")) == [
        f"{name}/001-generation.prompt.md" for name in PROBLEMS
    ]
    (carried / "two/c/001-generation.reply.md").write_text(answers.wrong)
    (carried / "one/b/001-generation.reply.md").write_text("")
    (carried / "one/b/009-generation.reply.md").write_text("nobody asked")
    ran = kforge_in_process("exchange", "answer", suite, "--from", carried, "--json")
    assert ran.status == 75
    assert json.loads(ran.stdout) == {
        "answered": ["two/c/001-generation"],
        "waiting": ["one/a/001-generation", "one/b/001-generation"],
    }
    assert "one/b/001-generation.reply.md is empty" in ran.stderr
    assert "009-generation.reply.md fits no question that waits" in ran.stderr
    for name in ("one/b", "one/a"):
        (carried / name / "001-generation.reply.md").write_text(answers.wrong)
    assert kforge_in_process("exchange", "answer", suite, "--from", carried).status == 0

    # the first move: another machine, which did not sign the suite
    elsewhere = tmp_path / "elsewhere" / suite.name
    elsewhere.parent.mkdir()
    shutil.move(suite, elsewhere)
    assert "--trust" in refused(kforge_in_process("resume", elsewhere, environment=there))
    assert kforge_in_process("resume", elsewhere, "--trust", environment=there).status == 75
    for name in reversed(PROBLEMS):
        (run,) = (elsewhere / "problems" / name).iterdir()
        (question,) = Exchange(run / "exchange").waiting()
        assert question.name == "002-generation"
        question.reply.write_text(answers.fast)

    # the second move: back, with attempts that were made there
    shutil.move(elsewhere, suite)
    ended = kforge_in_process("resume", suite, "--trust", "--json", environment=here)
    assert ended.status == 0, ended.stderr
    recording = tmp_path / "recording"
    recording.mkdir()
    for number, file in enumerate(sorted(suite.rglob("*.request.json"))):
        for each in file.parent.glob(f"{file.name.removesuffix('.request.json')}.*"):
            name, ending = each.name.split(".", 1)
            shutil.copy(each, recording / f"{number + 1:03d}-{name.partition('-')[2]}.{ending}")
    replayed = kforge_in_process(
        "suite", folder, *QUICK, "-m", f"replay:{recording}", "-n", "2", "--json", environment=here
    )
    assert replayed.status == 0, replayed.stderr
    assert (
        told(json.loads(ended.stdout)) == told(json.loads(replayed.stdout)) == dict.fromkeys(PROBLEMS, ("correct", 2))
    )

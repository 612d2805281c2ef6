"""Runs in a list of 80 columns, by the short names it gives them, in another folder, and without a name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Answers, Forged, Terminal
    from tests.conftest import RunKforge


@pytest.fixture
def waiting(kforge_in_process: RunKforge, tiny: Path, tmp_path: Path) -> Path:
    """A run that waits for its first reply."""
    ran = kforge_in_process("forge", tiny, "-p", "null", "-m", "exchange", "--no-compile-baseline")
    assert ran.status == 75
    (folder,) = (tmp_path / "kforge-runs").glob("*-tiny-*")
    return folder


def begun(kforge: RunKforge, tiny: Path, model: str, output: str) -> Path:
    ran = kforge("forge", tiny, "-p", "null", "-m", model, "-n", "1", "-o", output, "--no-compile-baseline", "--json")
    assert ran.status == 1, ran
    return Path(json.loads(ran.stdout)["run"])


# --- the list ---------------------------------------------------------------------------------------------


def test_the_list_can_be_read_at_80_columns(terminal: Terminal, forged: Forged) -> None:
    shown = terminal("runs", cwd=forged.root)
    assert shown.status == 0
    lines = [line for line in shown.screen if line]
    letters = forged.folder.name[-4:]
    assert lines[0].startswith("runs in ")
    (about,) = [index for index, line in enumerate(lines) if line.startswith(letters)]
    assert lines[about].startswith(f"{letters}  tiny on null with scripted:script.json, 20")
    assert lines[about + 1].startswith("      finished, 4 attempts: ")
    assert lines[-1] == f"to see one: kforge show {letters}"
    assert all(len(line) <= 80 for line in shown.lines if str(forged.root) not in line), "but for a long path"
    assert "…" not in shown.text


@pytest.mark.parametrize("command", ["show", "resume"])
def test_a_run_can_be_named_as_in_the_list(kforge_in_process: RunKforge, forged: Forged, command: str) -> None:
    ran = kforge_in_process(command, forged.folder.name[-4:], "--json", cwd=forged.root)
    assert ran.status == 0, ran
    assert json.loads(ran.stdout) == forged.document


@pytest.mark.parametrize("command", ["export", "transfer", "verify"])
def test_a_suite_is_refused_where_one_run_is_needed(kforge_in_process: RunKforge, tmp_path: Path, command: str) -> None:
    """Cause: `kforge runs` listed the suite, and `kforge export` said that there is no such run."""
    suite = tmp_path / "kforge-runs" / "20261119-000000-suite-core-93bj"
    suite.mkdir(parents=True)
    (suite / "suite.json").write_text("{}")
    more = {"export": ("-o", tmp_path / "out"), "transfer": ("--to", "null"), "verify": ()}[command]
    for name in ("93bj", suite.name, suite):
        ran = kforge_in_process(command, name, *more)
        assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
        assert "' is a suite, and one run is needed; the runs of its problems are in " in ran.stderr
        assert f"{suite.name}/problems" in ran.stderr


@pytest.mark.parametrize("command", ["show", "export"])
def test_a_name_inside_an_id_is_answered_with_the_latest_such_run(
    kforge_in_process: RunKforge, tmp_path: Path, command: str
) -> None:
    for name in ("20261119-000000-suite-core-93bj", "20261118-000000-suite-core-aaaa"):
        (tmp_path / "kforge-runs" / name).mkdir(parents=True)
        (tmp_path / "kforge-runs" / name / "suite.json").write_text("{}")
    ran = kforge_in_process(command, "core", *(("-o", tmp_path / "out") if command == "export" else ()))
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "the latest that has it in its name is 93bj (20261119-000000-suite-core-93bj)" in ran.stderr


def test_runs_with_the_same_letters_have_their_whole_ids(
    kforge_in_process: RunKforge, forged: Forged, tmp_path: Path
) -> None:
    earlier = "20200101-000000-other-" + forged.folder.name[-4:]
    for name in (forged.folder.name, earlier):
        copy = tmp_path / "kforge-runs" / name
        shutil.copytree(forged.folder, copy)
        header = json.loads((copy / "run.json").read_text())
        (copy / "run.json").write_text(json.dumps({**header, "id": name}))
    ran = kforge_in_process("runs")
    assert [line.split()[0] for line in ran.stdout.splitlines()[1:-1:2]] == [forged.folder.name, earlier]
    said = kforge_in_process("show", forged.folder.name[-4:])
    assert (said.status, said.stdout) == (2, "")
    assert f"could be any of 2 runs, the latest being {forged.folder.name}" in said.stderr


def test_a_list_without_an_index_file(kforge_in_process: RunKforge, forged: Forged, tmp_path: Path) -> None:
    shutil.copytree(forged.folder, tmp_path / "kforge-runs" / forged.folder.name)
    (tmp_path / "kforge-runs" / "index.sqlite").mkdir()  # root may write everywhere, but not over a folder
    ran = kforge_in_process("runs", "--json")
    assert ran.status == 0
    assert ran.stderr.endswith("was damaged: it was set aside as index.sqlite.damaged and rebuilt\n")
    assert [run["id"] for run in json.loads(ran.stdout)] == [forged.folder.name]


# --- another folder ---------------------------------------------------------------------------------------


def test_every_command_about_runs_takes_the_folder_that_forge_took(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, script: Callable[..., str]
) -> None:
    run = begun(kforge_in_process, tiny, script("no program", "none again"), "elsewhere")
    assert (tmp_path / run).is_dir()
    listed = kforge_in_process("runs", "-o", "elsewhere", "--json")
    assert [each["id"] for each in json.loads(listed.stdout)] == [run.name]
    assert json.loads(kforge_in_process("runs", "--json").stdout) == []
    for command in (("show", run.name[-4:]), ("show",), ("resume", run.name[-4:])):
        ran = kforge_in_process(*command, "-o", "elsewhere")
        assert ran.status == (1 if command[0] == "resume" else 0), ran
        assert run.name in ran.stdout
    for command in (("show",), ("resume",), ("suite", "--resume")):
        missed = kforge_in_process(*command, run.name)
        assert (missed.status, missed.stdout) == (2, "")
        assert f" in {tmp_path / 'kforge-runs'}; " in missed.stderr
        assert "for one in another folder, give its path, or that folder by -o or KFORGE_RUNS" in missed.stderr
    assert kforge_in_process("show", run.name, environment={"KFORGE_RUNS": "elsewhere"}).status == 0


@pytest.mark.parametrize("command", [("runs",), ("show",), ("show", "x")])
def test_a_folder_that_is_not_there_is_one_clear_line(kforge_in_process: RunKforge, command: tuple[str, ...]) -> None:
    ran = kforge_in_process(*command, "-o", "gone")
    assert (ran.status, ran.stdout, ran.stderr) == (2, "", "kforge: -o gone: there is no such folder\n")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("file", "Invalid value for '-o' / '--output': file: file is not a folder"),
        ("file/below", "/file is not a folder"),
        ("/proc/kforge", ": /proc/kforge: "),
    ],
)
def test_a_folder_that_cannot_be_written_is_one_clear_line(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path, place: str, why: str
) -> None:
    (tmp_path / "file").write_text("")
    ran = kforge_in_process("forge", tiny, "-p", "null", "-m", "exchange", "-o", place, "--no-compile-baseline")
    assert (ran.status, ran.stdout) == (2, "")
    line = ran.stderr.splitlines()[-1]  # after the progress, for a folder that only the system refuses
    assert line.startswith("kforge: ")
    assert why in line


# --- without a name, and unfinished -----------------------------------------------------------------------


def test_show_without_a_name_is_the_latest_run(kforge_in_process: RunKforge, forged: Forged) -> None:
    ran = kforge_in_process("show", cwd=forged.root)
    assert (ran.status, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0].endswith(f": {forged.folder.name}")
    document = kforge_in_process("show", "--json", cwd=forged.root)
    assert json.loads(document.stdout) == forged.document


BEGINS = "`kforge forge PROBLEM` begins one, and -o names another folder"


def test_show_without_any_run(kforge_in_process: RunKforge, tmp_path: Path) -> None:
    ran = kforge_in_process("show")
    assert (ran.status, ran.stdout) == (2, "")
    assert ran.stderr == f"kforge: no runs in {tmp_path / 'kforge-runs'}; {BEGINS}\n"


def test_a_run_that_waits_says_which_prompt_waits_and_how_to_go_on(
    kforge_in_process: RunKforge, waiting: Path, answers: Answers
) -> None:
    (prompt,) = (waiting / "exchange").glob("*.prompt.md")
    shown = kforge_in_process("show")
    assert (shown.status, shown.stderr) == (0, "")
    assert "tiny on null with exchange: no attempt yet" in shown.stdout
    assert shown.stdout.splitlines()[-4:] == [
        "waiting for the reply 001-generation.reply.md:", f"  read {prompt}",
        "  answer in 001-generation.reply.md beside it",
        f"then: kforge resume {waiting}",
    ]  # fmt: skip
    assert json.loads(kforge_in_process("show", "--json").stdout)["waiting"] == [str(prompt)]
    assert (
        "waiting for the reply 001-generation.reply.md, 0 attempts: nothing correct yet"
        in kforge_in_process("runs").stdout
    )
    (prompt.parent / prompt.name.replace("prompt", "reply")).write_text(" \n")
    assert "waiting for the reply 001-generation.reply.md, which is empty, 0" in kforge_in_process("runs").stdout
    assert len(json.loads(kforge_in_process("show", "--json").stdout)["empty_replies"]) == 1
    assert "001-generation.reply.md is there, but it is empty" in kforge_in_process("resume", waiting).stderr
    (prompt.parent / prompt.name.replace("prompt", "reply")).write_text(answers.no_program)
    assert kforge_in_process("show").stdout.splitlines()[-1] == f"interrupted; to go on: kforge resume {waiting}"


def test_an_interrupted_run_says_so(kforge_in_process: RunKforge, forged: Forged, tmp_path: Path) -> None:
    copy = tmp_path / "kforge-runs" / forged.folder.name
    shutil.copytree(forged.folder, copy)
    (copy / "result.json").unlink()
    shown = kforge_in_process("show", forged.folder.name[-4:])
    assert shown.stdout.splitlines()[-1] == f"interrupted; to go on: kforge resume {copy}"
    assert json.loads(kforge_in_process("show", "--json").stdout)["status"] == "interrupted"
    assert "interrupted, 4 attempts: " in kforge_in_process("runs").stdout


# --- odd names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "*", "..", "../..", "a\nb", "%s", "x" * 5000, "~", "\x1b[31m", "[bold]"])
@pytest.mark.parametrize("command", ["show", "resume"])
def test_a_name_with_odd_characters_is_one_clear_line(kforge_in_process: RunKforge, command: str, name: str) -> None:
    ran = kforge_in_process(command, name)
    assert (ran.status, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("kforge: ")
    assert "run" in line
    assert "\x1b" not in line
    assert len(line) < 300

"""Runs that were handed over: nothing in them runs, or widens rights, without the user's word. (cause: receipts)"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.cli.conftest import PROBLEM
from tests.cli.screen import run_in_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Forged
    from tests.conftest import RunKforge


class Waiting(NamedTuple):
    """A run that waits for a reply, its problem, and the file that the problem leaves when it runs."""

    run: Path
    problem: Path
    trace: Path


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory, clean_environment: dict[str, str]) -> Waiting:
    folder = tmp_path_factory.mktemp("waiting")
    problem, trace = folder / "tiny.py", folder / "ran"
    problem.write_text(PROBLEM + f"\nopen({str(trace)!r}, 'w')\n")
    command = ["forge", "tiny.py", "-p", "null", "-m", "exchange", "--no-compile-baseline", "-n", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "kforge", *command], cwd=folder, env=clean_environment, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 75, done.stderr
    return Waiting(next((folder / "kforge-runs").iterdir()), problem, trace)


@pytest.fixture
def handed_over(waiting: Waiting, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the run, as `edit` leaves its header; nobody of our own has signed it if it is theirs."""

    def make(edit: Callable[[dict[str, Any]], None] = lambda _: None, *, theirs: bool = True) -> Path:
        waiting.trace.unlink(missing_ok=True)
        run = tmp_path / "handed" / waiting.run.name
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(waiting.run, run)
        (run / "lock").unlink()
        document = json.loads((run / "run.json").read_text())
        edit(document)
        if theirs:
            (run / "run.json").write_text(json.dumps(document))
        return run

    return make


def refused(ran: Any) -> str:
    assert (ran.status, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran
    return str(ran.stderr)


def test_a_run_of_others_asks_and_our_own_does_not(
    kforge_in_process: RunKforge, handed_over: Any, waiting: Waiting
) -> None:
    run = handed_over()
    assert "was not made by you on this machine" in refused(kforge_in_process("resume", run))
    assert not waiting.trace.exists()
    assert not (run / "lock").exists()
    assert kforge_in_process("resume", run, "--trust").status == 75
    assert json.loads(kforge_in_process("resume", run, "--trust", "--json").stdout)["signed"] is False
    assert kforge_in_process("resume", run, "--problem", waiting.problem).status == 75
    assert kforge_in_process("resume", handed_over(theirs=False)).status == 75  # moved by the user


def test_what_a_run_of_others_claims_is_marked_when_it_is_resumed(
    kforge_in_process: RunKforge, forged: Forged, tmp_path: Path
) -> None:
    """Cause: `resume` repeated what others claimed as the user's own result; only `show` and `runs` marked it."""
    run = tmp_path / "theirs" / forged.folder.name
    shutil.copytree(forged.folder, run)
    assert "signed" not in json.loads(kforge_in_process("resume", run, "--json").stdout)
    assert "not signed by you" not in kforge_in_process("resume", run).stdout
    (run / "signature").unlink()
    script = ("--trust", "-m", "scripted:script.json", "--analyst", "scripted:script.json")
    assert json.loads(kforge_in_process("resume", run, *script, "--json").stdout)["signed"] is False
    assert kforge_in_process("resume", run, *script).stdout.splitlines()[-1].startswith("not signed by you")


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"unsafe": True}, "--unsafe"),
        ({"platform_dirs": "/there"}, "--platform-dir /there"),
        ({"model": "openai:m@http://there"}, "-m openai:m@http://there"),
        ({"analyst": "openai:m"}, "--analyst openai:m"),
    ],
)
def test_what_widens_rights_is_asked_for_by_its_own_flag(
    kforge_in_process: RunKforge, handed_over: Any, waiting: Waiting, options: dict[str, Any], flag: str
) -> None:
    run = handed_over(lambda document: document["options"].update(options))
    assert flag in refused(kforge_in_process("resume", run, "--trust"))
    assert not waiting.trace.exists()


def test_the_adapter_of_a_folder_in_a_run_of_others_is_not_imported(
    kforge_in_process: RunKforge, handed_over: Any, tmp_path: Path, root: Path
) -> None:
    planted = tmp_path / "planted" / "null"
    shutil.copytree(root / "src" / "kforge" / "platforms" / "null", planted)
    trace = tmp_path / "imported"
    (planted / "adapter.py").write_text(f"open({str(trace)!r}, 'w')\n")
    run = handed_over(lambda document: document["options"].update(platform_dirs=str(planted.parent)))
    refused(kforge_in_process("resume", run, "--trust"))
    refused(kforge_in_process("resume", run))
    assert not trace.exists()


@pytest.mark.parametrize("name", ["lock", "exchange", "attempts"])
def test_a_planted_link_is_told_in_one_line(
    kforge_in_process: RunKforge, handed_over: Any, tmp_path: Path, name: str
) -> None:
    run = handed_over(theirs=False)
    victim = tmp_path / "home"
    victim.mkdir()
    (victim / "notes").write_text("kept")
    place = run / name
    if place.is_dir():
        shutil.rmtree(place)
    place.symlink_to(victim / "notes" if name == "lock" else victim)
    assert "symbolic link" in refused(kforge_in_process("resume", run))
    assert [(path.name, path.read_text()) for path in victim.iterdir()] == [("notes", "kept")]


def test_a_suite_of_others_asks_as_well(kforge_in_process: RunKforge, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    tiny.rename(tmp_path / "problems" / "tiny.py")
    begin = ("suite", tmp_path / "problems", "-p", "null", "-m", "exchange", "--no-compile-baseline", "-n", "1")
    assert kforge_in_process(*begin).status == 75
    suite = next((tmp_path / "kforge-runs").iterdir())
    resumed = kforge_in_process("resume", suite)
    assert resumed.status == 75
    assert "not signed by you" not in resumed.stdout
    header = json.loads((suite / "suite.json").read_text())
    (suite / "suite.json").write_text(json.dumps(header))
    assert "its 1 problems would run with your rights" in refused(kforge_in_process("resume", suite))
    assert "--trust" in refused(kforge_in_process("suite", "--resume", suite))
    resumed = kforge_in_process("resume", suite, "--trust")
    assert resumed.status == 75
    assert "not signed by you" in resumed.stdout  # cause: what others claim was repeated as the user's own
    assert json.loads(kforge_in_process("resume", suite, "--trust", "--json").stdout)["signed"] is False
    header["options"]["unsafe"] = True
    (suite / "suite.json").write_text(json.dumps(header))
    assert "--unsafe" in refused(kforge_in_process("suite", "--resume", suite, "--trust"))


def test_a_run_of_others_inside_our_own_suite_is_not_resumed(
    kforge_in_process: RunKforge, tiny: Path, tmp_path: Path
) -> None:
    """The suite's header is signed, and the problem's own run folder was exchanged for another."""
    (tmp_path / "problems").mkdir()
    tiny.rename(tmp_path / "problems" / "tiny.py")
    begin = ("suite", tmp_path / "problems", "-p", "null", "-m", "exchange", "--no-compile-baseline", "-n", "1")
    assert kforge_in_process(*begin).status == 75
    suite = next((tmp_path / "kforge-runs").iterdir())
    header_path = next(suite.glob("problems/*/*/run.json"))
    header = json.loads(header_path.read_text())
    header["problem"]["source"] += f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
    header_path.write_text(json.dumps(header))
    ran = kforge_in_process("resume", suite)
    assert ran.status == 1
    assert "holds a problem that differs" in ran.stdout
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("answer", "status"), [(b"y\n", 75), (b"n\n", 2), (b"\n", 2)])
def test_a_user_at_a_terminal_is_asked(
    handed_over: Any, tmp_path: Path, clean_environment: dict[str, str], answer: bytes, status: int
) -> None:
    shown = run_in_terminal(["resume", str(handed_over())], tmp_path, clean_environment, answer)
    said = "".join(shown.text.replace("|", "").split())
    assert "wouldrunwithyourrights.Thecodeisin" in said
    assert "problem.py.Runit?[y/N]" in said
    assert shown.status == status

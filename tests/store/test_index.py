from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kforge.errors import InputError
from kforge.store import Index, RunFolder, RunSummary, index_url, list_runs
from kforge.store.folder import run_paths

if TYPE_CHECKING:
    from pathlib import Path


def from_folders(root: Path) -> tuple[RunSummary, ...]:
    return tuple(RunFolder.open(path).summary() for path in reversed(run_paths(root)))


def listed(root: Path) -> tuple[RunSummary, ...]:
    listing = list_runs(root, index_url(root))
    assert listing.notes == ()
    return listing.runs


def test_a_root_that_is_not_there_has_no_runs_and_is_not_made(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "none", index_url(tmp_path / "none")) == ((), ())
    assert not (tmp_path / "none").exists()


def test_rows_follow_the_folders(tmp_path: Path, header: Any, attempt: Any, outcome: Any) -> None:
    assert listed(tmp_path) == ()
    folder = RunFolder.create(tmp_path, header())
    assert [run.status for run in listed(tmp_path)] == ["interrupted"]
    with folder.writing():
        assert [run.status for run in listed(tmp_path)] == ["running"]
        folder.commit(attempt(0, speedup=1.5))
        (run,) = listed(tmp_path)
        assert (run.attempts, run.speedup) == (1, attempt(0, speedup=1.5).speedup)
    assert [run.status for run in listed(tmp_path)] == ["interrupted"]
    with folder.writing():
        folder.finish(outcome(best=0))
    (run,) = listed(tmp_path)
    assert (run.status, run.stopped, run.finding) == ("finished", "5 iterations done", "faster")
    shutil.rmtree(folder.path)
    assert listed(tmp_path) == ()


STEPS = st.lists(st.tuples(st.sampled_from(["create", "commit", "finish", "delete", "sync"]), st.integers(0, 3)))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=STEPS)
def test_an_index_kept_up_to_date_equals_one_rebuilt(
    tmp_path_factory: pytest.TempPathFactory, header: Any, attempt: Any, outcome: Any, steps: list[tuple[str, int]]
) -> None:
    root = tmp_path_factory.mktemp("runs")
    folders: list[RunFolder] = []
    with Index(root, index_url(root)) as kept:
        for step, number in steps:
            folder = folders[number % len(folders)] if folders else None
            if step == "create":
                folders.append(RunFolder.create(root, header(f"problem {number}")))
            elif step == "sync":
                kept.sync()
            elif folder is not None and step == "delete":
                shutil.rmtree(folder.path)
                folders.remove(folder)
            elif folder is not None and folder.outcome() is None:
                with folder.writing():
                    if step == "commit":
                        speedup = (None, 0.5, 1.5, 2.5)[number]
                        folder.commit(attempt(len(folder.attempts()), speedup=speedup))
                    else:
                        best = folder.best()
                        folder.finish(outcome(best=best.index if best else None))
        incremental = kept.sync()
    with Index(root, "sqlite://") as rebuilt:
        assert incremental == rebuilt.sync()
    assert incremental.runs == from_folders(root)
    assert incremental.notes == ()


def test_what_did_not_change_is_not_read_again(tmp_path: Path, header: Any, attempt: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, speedup=1.5))
    before = listed(tmp_path)
    database = sqlite3.connect(tmp_path / "index.sqlite")
    with database:
        database.execute("UPDATE runs SET problem = 'as the index has it'")
    database.close()
    assert [run.problem for run in listed(tmp_path)] == ["as the index has it"]
    with folder.writing():
        folder.commit(attempt(1))
    assert [run.problem for run in listed(tmp_path)] == [before[0].problem]


def test_rows_of_an_index_that_knew_less_are_read_again(tmp_path: Path, header: Any, attempt: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, speedup=1.5))
    (before,) = listed(tmp_path)
    database = sqlite3.connect(tmp_path / "index.sqlite")
    with database:
        database.execute("DELETE FROM kforge_migrations WHERE number = 2")
        for column in ("finding", "doubt", "no_kernel"):
            database.execute(f"ALTER TABLE runs DROP COLUMN {column}")
    database.close()
    assert listed(tmp_path) == (before,)
    assert before.finding == "faster"


def test_a_damaged_run_is_noted_and_does_not_hide_the_others(tmp_path: Path, header: Any, attempt: Any) -> None:
    good, bad = RunFolder.create(tmp_path, header("good")), RunFolder.create(tmp_path, header("bad"))
    assert len(listed(tmp_path)) == 2
    (bad.path / "run.json").write_text("{")
    (tmp_path / "half-created" / "attempts").mkdir(parents=True)
    listing = list_runs(tmp_path, index_url(tmp_path))
    assert [run.id for run in listing.runs] == [good.id]
    assert len(listing.notes) == 1
    assert str(bad.path) in listing.notes[0]


@pytest.mark.parametrize("damage", ["foreign", "torn", "scribbled"])
def test_a_damaged_index_is_rebuilt_and_said(tmp_path: Path, header: Any, damage: str) -> None:
    for number in range(60):  # enough rows for several pages
        RunFolder.create(tmp_path, header(f"problem {number}"))
    whole = listed(tmp_path)
    path = tmp_path / "index.sqlite"
    content = path.read_bytes()
    assert len(content) > 3 * 4096
    damaged = {
        "foreign": b"these are my holiday photographs" * 500,
        "torn": content[:4096] + content[8192:],
        "scribbled": content[:4096] + b"\xa5" * (len(content) - 4096),
    }[damage]
    path.write_bytes(damaged)
    listing = list_runs(tmp_path, index_url(tmp_path))
    assert listing.runs == whole == from_folders(tmp_path)
    assert listing.notes == (f"the run index {path} was damaged: it was set aside as index.sqlite.damaged and rebuilt",)
    assert (tmp_path / "index.sqlite.damaged").read_bytes() == damaged
    assert listed(tmp_path) == whole


def test_a_database_of_the_users_is_never_set_aside(tmp_path: Path, header: Any) -> None:
    RunFolder.create(tmp_path, header())
    precious = tmp_path / "precious.db"
    precious.write_bytes(b"not a database at all" * 500)
    with pytest.raises(InputError, match="is damaged, or not a database"):
        list_runs(tmp_path, f"sqlite:///{precious}")
    assert precious.read_bytes() == b"not a database at all" * 500


def test_roots_share_a_database_without_seeing_each_other(tmp_path: Path, header: Any) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    roots = [tmp_path / "one", tmp_path / "two"]
    folders = [RunFolder.create(root, header(root.name)) for root in roots]
    for root, folder in zip(roots, folders, strict=True):
        assert [run.id for run in list_runs(root, url).runs] == [folder.id]
    shutil.rmtree(folders[0].path)
    assert list_runs(roots[0], url).runs == ()
    assert [run.id for run in list_runs(roots[1], url).runs] == [folders[1].id]


def test_a_root_may_have_any_name(tmp_path: Path, header: Any) -> None:
    root = tmp_path / "what? 100% #1 &é"
    RunFolder.create(root, header())
    assert len(listed(root)) == 1
    assert (root / "index.sqlite").is_file()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("secret", "SQLAlchemy does not understand the database URL"),
        ("", "SQLAlchemy does not understand the database URL"),
        ("nonesuch://user:secret@host/db", "SQLAlchemy does not understand the database URL"),
        ("mysql+pymysql://user:secret@host/db", "needs the package 'pymysql', which is not installed"),
        ("sqlite:////nowhere/at/all/secret.db", "cannot be used: unable to open database file"),
    ],
)
def test_a_bad_database_is_said_in_one_line(tmp_path: Path, url: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        list_runs(tmp_path, url)
    assert "\n" not in str(caught.value)
    assert ":secret" not in str(caught.value)


def test_processes_may_refresh_one_index_at_once(tmp_path: Path, header: Any) -> None:
    for number in range(5):
        RunFolder.create(tmp_path, header(f"problem {number}"))
    code = (
        "import sys; from pathlib import Path; from kforge.store import index_url, list_runs\n"
        "root = Path(sys.argv[1])\n"
        "for _ in range(5): listing = list_runs(root, index_url(root))\n"
        "print(len(listing.runs), listing.notes)\n"
    )
    command = [sys.executable, "-c", code, tmp_path]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in processes] == ["5 ()\n"] * 4
    assert listed(tmp_path) == from_folders(tmp_path)


def test_the_store_is_imported_without_sqlalchemy() -> None:
    code = "import sys, kforge.store, kforge.settings; print('sqlalchemy' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"

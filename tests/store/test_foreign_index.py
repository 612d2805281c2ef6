"""Databases of others in the place of the index: set aside and rebuilt, and nothing in them is evaluated."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from kforge.store import RunFolder, RunSummary, index_url, list_runs
from kforge.store import index as index_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS number, i AS name FROM n"


def execute(path: Path, *statements: str) -> None:
    database = sqlite3.connect(path)
    with database:
        for statement in statements:
            database.execute(statement)
    database.close()


def as_view(path: Path) -> None:
    execute(path, "ALTER TABLE runs RENAME TO held", "CREATE VIEW runs AS SELECT * FROM held")


def as_endless_view(path: Path) -> None:
    execute(path, "DROP TABLE kforge_migrations", f"CREATE VIEW kforge_migrations AS {ENDLESS}")


def with_trigger(path: Path) -> None:
    execute(path, "CREATE TRIGGER t AFTER INSERT ON runs BEGIN UPDATE runs SET speedup_low = 500; END")


def with_generated_column(path: Path) -> None:
    execute(path, "ALTER TABLE runs ADD COLUMN more TEXT AS (hex(zeroblob(100000000)))")


def with_other_tables(path: Path) -> None:
    execute(path, "CREATE TABLE photographs (id INTEGER)")


def with_other_types(path: Path) -> None:
    execute(path, "UPDATE runs SET attempts = 'many'")


def with_no_date(path: Path) -> None:
    execute(path, "UPDATE runs SET created = 'yesterday'")


def with_nonsense_speedup(path: Path) -> None:
    execute(path, "UPDATE runs SET speedup_low = -1, speedup_median = 1e308, speedup_high = 9e999")


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_folder(path: Path) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


def huge(path: Path) -> None:
    os.truncate(path, index_module.LARGEST + 1)


def with_super_journal(path: Path) -> None:
    """SQLite removes the file that such a journal names, when it names no journal in turn."""
    victim = str(path.with_name("precious")).encode()
    header = bytes.fromhex("d9d505f920a163d7") + bytes(4) + bytes(4) + (2).to_bytes(4, "big") + (512).to_bytes(4, "big")
    header = (header + (4096).to_bytes(4, "big")).ljust(512, b"\0")
    sum_of = sum(victim).to_bytes(4, "big")
    lock_page = (0x40000000 // 4096 + 1).to_bytes(4, "big")
    journal = header + lock_page + victim + len(victim).to_bytes(4, "big") + sum_of + bytes.fromhex("d9d505f920a163d7")
    path.with_name("index.sqlite-journal").write_bytes(journal)


@pytest.mark.parametrize(
    "spoil",
    [
        as_view, as_endless_view, with_trigger, with_generated_column, with_other_tables, with_other_types,
        with_no_date, with_nonsense_speedup, as_pipe, as_folder, huge, with_super_journal,
    ],
)  # fmt: skip
def test_a_foreign_index_is_set_aside_and_rebuilt(
    tmp_path: Path, header: Any, attempt: Any, spoil: Callable[[Path], None]
) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, speedup=1.5))
    (tmp_path / "precious").write_text("kept")
    before = listed(tmp_path)
    spoil(tmp_path / "index.sqlite")
    listing = list_runs(tmp_path, index_url(tmp_path))
    assert listing.runs == before
    assert len(listing.notes) == 1
    assert "was damaged: it was set aside as index.sqlite.damaged and rebuilt" in listing.notes[0]
    assert os.path.lexists(tmp_path / "index.sqlite.damaged")
    assert (tmp_path / "precious").read_text() == "kept"
    assert list_runs(tmp_path, index_url(tmp_path)) == (before, ())


def test_what_was_set_aside_before_is_kept(tmp_path: Path, header: Any) -> None:
    RunFolder.create(tmp_path, header())
    for number in (1, 2, 3):
        (tmp_path / "index.sqlite").write_bytes(b"photographs %d" % number * 500)
        listing = list_runs(tmp_path, index_url(tmp_path))
        assert (len(listing.runs), len(listing.notes)) == (1, 1)
    kept = [(tmp_path / f"index.sqlite.damaged{end}").read_bytes()[:13] for end in ("", "-2", "-3")]
    assert kept == [b"photographs 1", b"photographs 2", b"photographs 3"]


def listed(root: Path) -> tuple[RunSummary, ...]:
    return list_runs(root, index_url(root)).runs

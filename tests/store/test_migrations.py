from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.exc import OperationalError

from kforge.errors import InputError
from kforge.store.migrations import Migration, migrate, migrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RELEASED = {
    "001_runs": "d0389c78e171364ee9f9963f4e5be8a388da7244570f16701b982caf4e972179",
    "002_findings": "92aad6513bef6d2793b5abc838913dafee0020b9ed8207445d1c1c8c24787073",
}
"""What is released is never edited: a change is a new file, with a new line here."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'index.sqlite'}")
    yield engine
    engine.dispose()


def applied(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.exec_driver_sql("SELECT name FROM kforge_migrations ORDER BY number").scalars())


def test_released_migrations_are_never_edited(root: Path) -> None:
    files = sorted((root / "src/kforge/store/migrations").glob("*.sql"))
    assert {file.stem: hashlib.sha256(file.read_bytes()).hexdigest() for file in files} == RELEASED
    assert [migration.name for migration in migrations()] == list(RELEASED)


def test_a_database_is_brought_up_to_date_step_by_step(engine: Engine) -> None:
    known = [*migrations(), Migration(len(migrations()) + 1, "later", ("ALTER TABLE runs ADD COLUMN host TEXT",))]
    migrate(engine, known[:1])
    migrate(engine, known[:1])
    assert applied(engine) == ["001_runs"]
    migrate(engine, known)
    assert applied(engine) == [migration.name for migration in known]
    assert "host" in {column["name"] for column in inspect(engine).get_columns("runs")}


def test_a_migration_that_fails_leaves_no_trace(engine: Engine) -> None:
    broken = Migration(1, "broken", ("CREATE TABLE half (x INTEGER)", "CREATE NONSENSE"))
    with pytest.raises(OperationalError):
        migrate(engine, [broken])
    assert applied(engine) == []
    assert not inspect(engine).has_table("half")


def test_a_newer_database_is_refused_in_one_line(engine: Engine) -> None:
    later = Migration(len(migrations()) + 1, "later", ())
    migrate(engine, [*migrations(), later])
    with pytest.raises(InputError, match=f"newer kforge \\(migration {later.number}\\)"):
        migrate(engine, migrations())


def test_processes_may_migrate_at_once(engine: Engine, tmp_path: Path) -> None:
    code = (
        "import sys; from sqlalchemy import create_engine; from kforge.store.migrations import migrate, migrations\n"
        "sys.stdin.readline(); migrate(create_engine(sys.argv[1]), migrations())\n"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{tmp_path / 'index.sqlite'}"]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.close()
    assert [process.wait() for process in processes] == [0] * 4
    assert applied(engine) == [migration.name for migration in migrations()]


def test_a_migration_that_another_process_applies_meanwhile_is_not_applied_again(engine: Engine) -> None:
    (first, *_) = migrations()
    migrate(engine, [])
    with engine.begin() as other:
        other.exec_driver_sql(f"INSERT INTO kforge_migrations VALUES (1, '{first.name}')")
        late = threading.Thread(target=migrate, args=(engine, [first]))
        late.start()  # finds nothing applied, and then waits for our row
        time.sleep(0.3)
        assert late.is_alive()
        for statement in first.statements:
            other.exec_driver_sql(statement)
    late.join()  # an exception in the thread would fail the test as a warning
    assert applied(engine) == [first.name]


def test_statements_are_read_without_comments(tmp_path: Path) -> None:
    (tmp_path / "001_first.sql").write_text(
        "-- why;\nCREATE TABLE a (\n  x TEXT DEFAULT ';'\n);\nCREATE TABLE b (y TEXT);"
    )
    (first,) = migrations(tmp_path)
    assert first == (1, "001_first", ("CREATE TABLE a (\n  x TEXT DEFAULT ';'\n)", "CREATE TABLE b (y TEXT)"))
    (tmp_path / "003_third.sql").write_text("")
    with pytest.raises(AssertionError, match="without gaps"):
        migrations(tmp_path)

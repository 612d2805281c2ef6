"""The index's schema as numbered SQL files. Files are only ever added, so that an old database can be updated.

A statement ends with `;` at the end of a line. Only SQL that both SQLite and PostgreSQL understand is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kforge.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Engine


class Migration(NamedTuple):
    """One numbered SQL file, split into statements."""

    number: int
    name: str
    statements: tuple[str, ...]


def migrations(folder: Path = Path(__file__).parent) -> list[Migration]:
    """Return all migrations, in order."""
    found = []
    for path in sorted(folder.glob("[0-9][0-9][0-9]_*.sql")):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("--")]
        statements = tuple(part.strip() for part in "\n".join([*lines, ""]).split(";\n") if part.strip())
        found.append(Migration(int(path.name[:3]), path.stem, statements))
    assert [m.number for m in found] == list(range(1, len(found) + 1)), "migrations are numbered without gaps"
    return found


def migrate(engine: Engine, known: Sequence[Migration]) -> None:
    """Apply the migrations that a database lacks. Several processes may do so at the same time.

    Raises InputError if the database was made by a newer kforge.
    """
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE IF NOT EXISTS kforge_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
        )
        latest = _latest(connection)
    if latest > len(known):
        raise InputError(f"the run index was made by a newer kforge (migration {latest}); update kforge to use it")
    for migration in known[latest:]:
        _apply(engine, migration)


def _apply(engine: Engine, migration: Migration) -> None:
    from sqlalchemy import text
    from sqlalchemy.exc import IntegrityError

    try:
        with engine.begin() as connection:
            # The row is inserted first: a second process waits for its key, and then fails on it.
            connection.execute(
                text("INSERT INTO kforge_migrations (number, name) VALUES (:number, :name)"),
                {"number": migration.number, "name": migration.name},
            )
            for statement in migration.statements:
                connection.exec_driver_sql(statement)
    except IntegrityError:
        with engine.connect() as connection:
            if _latest(connection) < migration.number:
                raise


def _latest(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT COALESCE(MAX(number), 0) FROM kforge_migrations").scalar_one())


# --- recognizing a database of kforge -----------------------------------------------------------------------


def has_known_schema(connection: Connection, known: Sequence[Migration]) -> bool:
    """Return whether an SQLite database has a schema that these migrations, or those of a newer kforge, could have
    made.

    Only the schema is read, and the table of migrations if it is an ordinary table.
    """
    found = _schema(connection)
    expected = _schemas(known)
    if found in expected:
        return True
    is_counted = expected[1] <= found and not any(kind in ("view", "trigger") for kind, _, _ in found)
    return is_counted and _latest(connection) > len(known)


def _schemas(known: Sequence[Migration]) -> list[frozenset[tuple[str, str, str]]]:
    """Return the schemas of an empty database, of one with only the table of migrations, and after each migration."""
    from sqlalchemy import create_engine

    engine = create_engine("sqlite://")
    found = [frozenset[tuple[str, str, str]]()]
    for count in range(len(known) + 1):
        migrate(engine, known[:count])
        with engine.connect() as connection:
            found.append(_schema(connection))
    engine.dispose()
    return found


def _schema(connection: Connection) -> frozenset[tuple[str, str, str]]:
    rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master")
    return frozenset((str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in rows)

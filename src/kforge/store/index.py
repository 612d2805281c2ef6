"""An SQL index over runs, for questions about many of them. All its data comes from the run folders, so it can be
rebuilt.

SQLAlchemy is imported only when an index is opened, since most commands do not need it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sqlite3
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote

from pydantic import ValidationError

from kforge import durable
from kforge.errors import InputError, RunError
from kforge.records import Interval
from kforge.store import derived, lock
from kforge.store.carried import shown
from kforge.store.folder import RunFolder, run_paths, status_of
from kforge.store.migrations import has_known_schema, migrate, migrations
from kforge.store.records import RunSummary, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import URL, Engine, RowMapping, TableClause

    from kforge.store.signature import Key

BUSY_SECONDS = 30.0
"""Seconds to wait for another process that writes the index."""

INDEX = "index.sqlite"
LARGEST = 256 * 2**20
"""Largest size of an index, in bytes, that is used. A run takes about one thousand bytes."""
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The magic number at the end of a journal that names a super-journal (SQLite's file format, section 3)."""

COLUMNS = (
    "id", "created", "problem", "platform", "model", "status", "stopped", "attempts",
    "speedup_low", "speedup_median", "speedup_high", "finding", "doubt", "no_kernel",
)  # fmt: skip


class Listing(NamedTuple):
    """Runs, newest first, and notes for the user about the index or about folders that cannot be read."""

    runs: tuple[RunSummary, ...]
    notes: tuple[str, ...]


def index_url(root: Path) -> str:
    """Return the URL of the default database of a root folder."""
    return f"sqlite:///{quote(os.fsencode(root.resolve() / INDEX))}"


def list_runs(root: Path, url: str, key: Key | None = None) -> Listing:
    """Return the runs under a root folder, from an updated index. `key` is as in `Index`. Raises InputError if the
    index cannot be used."""
    if not root.is_dir():
        return Listing((), ())
    with Index(root, url, key) as index:
        return index.sync()


class Index:
    """The rows of one root folder in a database. Other roots and other processes may share the database."""

    def __init__(self, root: Path, url: str, key: Key | None = None) -> None:
        """Open the database. `key` is the user's key: summaries that it signed spare reading the runs' attempts.

        Raises InputError if the URL is wrong or its driver is not installed.
        """
        self.root = root.resolve()
        self._signing = key
        # a path may contain bytes that are not UTF-8, but a database stores text
        self._key = os.fsencode(self.root).decode("utf-8", "backslashreplace")
        self._ours = url == index_url(root)
        self._engine = _engine(_file_url(self.root / INDEX) if self._ours else url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.dispose()

    def sync(self) -> Listing:
        """Update the rows from the folders, reading only folders that changed, and return the runs.

        Raises InputError if the database cannot be used, and RunError if it is a symbolic link.
        """
        if self._ours:
            for path in _files(self.root):
                durable.refuse_links(path)
        try:
            return self._sync()
        except _DamagedIndex:
            with lock.exclusive(self.root / "index.lock", what="the run index", wait=BUSY_SECONDS):
                return self._rebuild()

    def runs(self) -> tuple[RunSummary, ...]:
        """Return the runs as of the last `sync`, newest first. Raises InputError if the database cannot be used."""
        with self._usable():
            rows = self._rows()
        try:
            return tuple(map(_summary, rows))
        except ValidationError as error:
            raise self._damaged() from error

    def _sync(self) -> Listing:
        with self._usable():
            if self._ours:
                self._must_be_an_index()
            migrate(self._engine, migrations())
            known = {row["id"]: row["mark"] for row in self._rows()}
        gone, changed, notes = set(known), [], []
        for path in run_paths(self.root):
            try:
                status = status_of(path)
                mark = _mark(path, status)
                if known.get(path.name) != mark:
                    changed.append({"root": self._key, "mark": mark, **_row(path, self._signing), "status": status})
                gone.discard(path.name)
            except RunError as error:
                notes.append(str(error))
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                notes.append(f"{path} is left out: {error.filename}: {error.strerror}")
        with self._usable():
            self._replace(gone, changed)
        return Listing(self.runs(), tuple(notes))

    def _rebuild(self) -> Listing:
        try:
            return self._sync()  # another process may have rebuilt it while we waited for the lock
        except _DamagedIndex:
            if not self._ours:
                raise  # a database that the user named may hold more than an index
        self._engine.dispose()
        try:
            aside = _set_aside(self.root)
        except OSError as error:
            raise InputError(f"the damaged run index in {self.root} cannot be set aside: {error.strerror}") from error
        listing = self._sync()
        note = f"the run index {self.root / INDEX} was damaged: it was set aside as {aside} and rebuilt"
        return listing._replace(notes=(note, *listing.notes))

    def _must_be_an_index(self) -> None:
        """Raise _DamagedIndex if kforge did not make the database in the root folder. None of its SQL is evaluated.

        A view or a trigger in place of a table could return anything, or run forever.
        """
        size = 0
        for path in filter(os.path.lexists, _files(self.root)):
            about = path.lstat()
            size += about.st_size
            if not stat.S_ISREG(about.st_mode) or size > LARGEST or _names_another(path):
                raise self._damaged()
        with self._engine.connect() as connection:
            if not has_known_schema(connection, migrations()):
                raise self._damaged()

    def _damaged(self) -> _DamagedIndex:
        return _DamagedIndex(f"the run index {self._engine.url} is damaged, or not a database of kforge's")

    def _rows(self) -> list[RowMapping]:
        from sqlalchemy import select

        runs = _table()
        query = select(runs).where(runs.c.root == self._key).order_by(runs.c.id.desc())
        with self._engine.connect() as connection:
            return list(connection.execute(query).mappings())

    def _replace(self, gone: set[str], changed: list[dict[str, Any]]) -> None:
        from sqlalchemy import delete, insert, text

        runs = _table()
        outdated = gone | {row["id"] for row in changed}
        if not outdated:
            return
        with self._engine.begin() as connection:
            # Every writer first touches the same row, so that writers queue on every kind of database.
            connection.execute(text("UPDATE kforge_migrations SET name = name WHERE number = 1"))
            for name in outdated:
                connection.execute(delete(runs).where(runs.c.root == self._key, runs.c.id == name))
            if changed:
                connection.execute(insert(runs), changed)

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn database errors inside the `with` block into an InputError of one line, or into _DamagedIndex if the
        file is damaged."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) else None
            if isinstance(cause, sqlite3.DatabaseError) and _is_damage(cause):
                raise self._damaged() from error
            reason = " ".join(str(cause or error).split())
            raise InputError(f"the run index {self._engine.url} cannot be used: {reason}") from error


def _files(root: Path) -> list[Path]:
    """Return the database file in a folder of runs, and the files that SQLite may write beside it."""
    return [root / f"{INDEX}{suffix}" for suffix in ("", "-journal", "-wal", "-shm")]


def _set_aside(root: Path) -> str:
    """Rename the database and its files to unused names, and return the new name of the database."""
    for number in itertools.count(1):
        ending = ".damaged" if number == 1 else f".damaged-{number}"
        names = {path: path.with_name(path.name + ending) for path in _files(root)}
        if not any(map(os.path.lexists, names.values())):
            break
    for path in filter(os.path.lexists, names):
        path.rename(names[path])
    return names[root / INDEX].name


def _names_another(path: Path) -> bool:
    """Return whether a journal names a super-journal. SQLite would delete the named file, and kforge's journals never
    name one."""
    if not path.name.endswith("-journal") or path.stat().st_size < len(_SUPER_JOURNAL):
        return False
    with path.open("rb") as file:
        file.seek(-len(_SUPER_JOURNAL), os.SEEK_END)
        return file.read() == _SUPER_JOURNAL


class _DamagedIndex(InputError):
    """The index is not a database, or is damaged."""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    # Extended codes keep the primary one in the low byte. An error of the Python layer has no code at all.
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _file_url(path: Path) -> URL:
    # Not parsed from text: releases of SQLAlchemy differ on whether a path in a URL is percent-decoded.
    from sqlalchemy import URL

    return URL.create("sqlite", database=str(path))


def _engine(url: str | URL) -> Engine:
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError

    # The URL may hold a password, so no message quotes it before SQLAlchemy could parse and mask it.
    try:
        parsed = make_url(url)
        options = {"timeout": BUSY_SECONDS} if parsed.get_backend_name() == "sqlite" else {}
        return create_engine(parsed, connect_args=options)
    except ArgumentError as error:
        raise InputError("SQLAlchemy does not understand the database URL; an example is sqlite:///PATH") from error
    except ModuleNotFoundError as error:
        raise InputError(f"the database URL needs the package '{error.name}', which is not installed") from error


def _mark(path: Path, status: Status) -> str:
    """Return a hash that changes whenever a run's row must change: with its header, attempts, outcome or status."""
    files = [path / "run.json"]
    # a finished run gets no more attempts
    files += [path / "result.json"] if status == "finished" else sorted(path.glob("attempts/*/attempt.json"))
    stats = [(file.relative_to(path).as_posix(), file.stat()) for file in files]
    facts = [status, *(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _row(path: Path, key: Key | None) -> dict[str, Any]:
    summary = derived.read(path, derived.SUMMARY, RunSummary, key) if key is not None else None
    summary = summary or RunFolder.open(path).summary()
    if summary.id != path.name:
        raise RunError(f"{path} is left out: its run.json names run {shown(summary.id)}; rename the folder to that")
    speedup = summary.speedup
    return {
        **summary.model_dump(exclude={"speedup"}),
        "speedup_low": speedup.low if speedup else None,
        "speedup_median": speedup.median if speedup else None,
        "speedup_high": speedup.high if speedup else None,
    }


def _summary(row: RowMapping) -> RunSummary:
    facts = {name: row[name] for name in COLUMNS}
    low, median, high = (facts.pop(f"speedup_{name}") for name in ("low", "median", "high"))
    return RunSummary(**facts, speedup=None if low is None else Interval(median=median, low=low, high=high))


def _table() -> TableClause:
    from sqlalchemy import column, table

    return table("runs", *(column(name) for name in ("root", "mark", *COLUMNS)))

"""Symbolic links planted in a folder that was handed over: told in one line, and what they lead to is untouched.

(cause: receipts)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from kforge import durable
from kforge.errors import RunError
from kforge.models import Exchange, Message, Reply, Request
from kforge.records import Usage
from kforge.store import RunFolder, index_url, list_runs, lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEPT = "the user's own"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user's outside of any run."""
    path = tmp_path / "home" / "notes.txt"
    path.parent.mkdir()
    path.write_text(KEPT)
    return path


def one_line(error: pytest.ExceptionInfo[RunError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["lock", "best.py", "attempts/000/attempt.json", "attempts/000/candidate.py"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_file_of_a_run_that_is_a_link_is_not_written_through(
    tmp_path: Path, victim: Path, header: Any, attempt: Any, name: str, dangling: bool
) -> None:
    folder = RunFolder.create(tmp_path / "runs", header())
    target = victim.with_name("absent") if dangling else victim
    (folder.path / "attempts" / "000").mkdir()
    (folder.path / name).symlink_to(target)
    with pytest.raises(RunError, match="symbolic link") as refused, folder.writing():
        folder.commit(attempt(0, speedup=1.2))
    assert name.rpartition("/")[2] in one_line(refused)
    assert victim.read_text() == KEPT
    assert target.exists() == (not dangling)


@pytest.mark.parametrize("name", ["attempts", "attempts/000", "exchange"])
def test_a_folder_of_a_run_that_is_a_link_is_not_written_into(
    tmp_path: Path, victim: Path, header: Any, attempt: Any, name: str
) -> None:
    folder = RunFolder.create(tmp_path / "runs", header())
    if name != "attempts/000":
        (folder.path / name).rmdir()
    (folder.path / name).symlink_to(victim.parent)
    with pytest.raises(RunError, match="symbolic link") as refused, folder.writing():
        folder.commit(attempt(0, speedup=1.2))
    one_line(refused)
    assert list(victim.parent.iterdir()) == [victim]


def test_a_run_that_is_a_link_itself_is_not_written_into(tmp_path: Path, header: Any) -> None:
    folder = RunFolder.create(tmp_path / "elsewhere", header())
    (link := tmp_path / "link").symlink_to(folder.path)
    linked = RunFolder.open(link)
    with pytest.raises(RunError, match="symbolic link"), linked.writing():
        pass
    assert not (folder.path / "lock").exists()


def test_the_root_of_runs_may_be_a_link(tmp_path: Path, header: Any, attempt: Any) -> None:
    """An honest near miss: users keep their runs on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    folder = RunFolder.create(tmp_path / "runs", header())
    with folder.writing():
        folder.commit(attempt(0, speedup=1.2))
    assert folder.best_path is not None


@pytest.mark.parametrize("shared", [False, True])
def test_a_temporary_name_that_was_guessed_leads_nowhere(tmp_path: Path, victim: Path, shared: bool) -> None:
    for guess in (".file.tmp", ".file.0123456789abcdef.tmp"):
        (tmp_path / guess).symlink_to(victim)
    durable.write(tmp_path / "file", "text", shared=shared)
    assert (tmp_path / "file").read_text() == "text"
    assert victim.read_text() == KEPT


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".file.0123456789abcdef.tmp").write_text("half")
    (tmp_path / ".file2.0123456789abcdef.tmp").write_text("another's")
    durable.write(tmp_path / "file", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".file2.0123456789abcdef.tmp", "file"]


def test_a_lock_with_a_second_name_is_not_written(tmp_path: Path, victim: Path) -> None:
    os.link(victim, tmp_path / "lock")
    with pytest.raises(RunError, match="is not a lock file"), lock.exclusive(tmp_path / "lock", what="run x"):
        pass
    assert victim.read_text() == KEPT


def test_a_lock_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(RunError, match="is not a lock file"), lock.exclusive(tmp_path / "lock", what="run x"):
        pass


@pytest.mark.parametrize("name", ["index.sqlite", "index.sqlite-journal", "index.sqlite-wal"])
def test_an_index_that_is_a_link_is_not_opened(tmp_path: Path, victim: Path, header: Any, name: str) -> None:
    """SQLite would make our tables in a database of the user's."""
    RunFolder.create(tmp_path / "runs", header())
    victim.write_bytes(b"")
    (tmp_path / "runs" / name).symlink_to(victim)
    with pytest.raises(RunError, match="symbolic link"):
        list_runs(tmp_path / "runs", index_url(tmp_path / "runs"))
    assert victim.read_bytes() == b""


def refusal(action: Callable[[], object]) -> str:
    try:
        action()
    except RunError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("suffix", ["request.json", "reply.json", "reply.md"])
def test_an_exchange_neither_reads_nor_writes_through_links(tmp_path: Path, victim: Path, suffix: str) -> None:
    """A reply that leads to a private file would be read, and quoted to the next model."""
    exchange = Exchange(tmp_path / "exchange")
    exchange.folder.mkdir()
    request = Request(
        agent="generation", model="m", max_tokens=1, messages=(Message(role="user", text="?", fingerprint="?"),)
    )
    (exchange.folder / f"{request.identity}.{suffix}").symlink_to(victim)
    reply = Reply(text="text", usage=Usage(), model="m", finish="stop")
    actions: list[Callable[[], object]] = [lambda: exchange.reply(request), lambda: exchange.write_request(request)]
    actions.append(lambda: exchange.write_reply(request, reply))
    told = [message for message in map(refusal, actions) if message]
    assert told
    assert all("symbolic link" in message for message in told)
    assert victim.read_text() == KEPT


@pytest.mark.parametrize("place", ["/etc/hostname", "../state.pt"])
def test_weights_are_a_file_of_the_run(tmp_path: Path, header: Any, place: str) -> None:
    folder = RunFolder.create(tmp_path, header())
    told = folder.header.problem.model_copy(update={"state_path": place, "state_digest": "0" * 64})
    (folder.path / "run.json").write_text(folder.header.model_copy(update={"problem": told}).to_json())
    with pytest.raises(RunError, match="its weights must be a file of its folder"):
        RunFolder.open(folder.path)

"""Runs of others: their code and their options need the user's word, each its own. (cause: receipts)"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from kforge import durable
from kforge.errors import RunError
from kforge.records import Problem
from kforge.store import Consent, Key, RunFolder, trust
from kforge.store.trust import admit_options, admit_suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLAIN = {"unsafe": False, "model": "builtin", "analyst": "builtin", "platform_dirs": ""}


@pytest.fixture
def theirs(tmp_path: Path, header: Callable[..., Any]) -> Callable[..., RunFolder]:
    """A run that another user's key signed."""

    def make(**options: object) -> RunFolder:
        told = header().model_copy(update={"options": PLAIN | options})
        return RunFolder.create(tmp_path / "runs", told, Key(tmp_path / "their state"))

    return make


@pytest.fixture
def key(tmp_path: Path) -> Key:
    own = Key(tmp_path / "state")
    own.sign("run", b"")
    return own


def test_a_run_of_our_own_is_admitted_whatever_it_asks_for(tmp_path: Path, header: Any, key: Key) -> None:
    told = header().model_copy(update={"options": PLAIN | {"unsafe": True, "model": "openai:x@http://there"}})
    RunFolder.create(tmp_path, told, key).admit(key, Consent())


def test_the_code_of_others_needs_trust_or_the_same_problem_or_a_yes(theirs: Any, key: Key) -> None:
    run = theirs()
    with pytest.raises(RunError, match=r"was not made by you on this machine.*give --problem FILE.* or --trust"):
        run.admit(key, Consent())
    run.admit(key, Consent(trust=True))
    same = run.header.problem.model_copy(update={"name": "mine"})
    run.admit(key, Consent(problem=same))
    with pytest.raises(RunError, match="differs from the file given with --problem"):
        run.admit(key, Consent(problem=Problem(name="mine", source="pass")))
    asked: list[str] = []
    run.admit(key, Consent(ask=lambda question: not asked.append(question)))  # type: ignore[func-returns-value]
    assert str(run.path) in asked[0]
    with pytest.raises(RunError):
        run.admit(key, Consent(ask=lambda _: False))


@pytest.mark.parametrize("change", ["class Model: ...\n", None])
def test_code_that_the_user_cannot_read_does_not_run(theirs: Any, key: Key, change: str | None) -> None:
    """Cause: problem.py was there to be read, and the problem of run.json ran, whatever problem.py held."""
    run = theirs()
    with pytest.raises(RunError, match=rf"read {re.escape(str(run.path / 'problem.py'))} first"):
        run.admit(key, Consent())
    (run.path / "problem.py").unlink()
    if change is not None:
        (run.path / "problem.py").write_text(change)
    for consent in (Consent(), Consent(trust=True), Consent(ask=lambda _: True)):
        with pytest.raises(RunError, match=r"problem\.py differs from the problem in run\.json"):
            run.admit(key, consent)


def test_the_problems_of_a_suite_of_others_are_written_out_to_be_read(tmp_path: Path) -> None:
    problems = {"a/b": Problem(name="b", source="# é\r\n"), "a b": Problem(name="b", source="other")}
    with pytest.raises(RunError) as refused:
        admit_suite(problems, "/a/suite", Consent(to_read=tmp_path))
    (folder,) = tmp_path.iterdir()
    assert f"read {folder} first" in str(refused.value)
    assert sorted(file.read_bytes() for file in folder.iterdir()) == ["# é\r\n".encode(), b"other"]


def test_a_suite_of_others_with_too_many_problems_is_not_written_out(tmp_path: Path) -> None:
    """Cause: thousands of files were written before the user was asked, each after a scan of all the others."""
    problems = {f"a/{number}": Problem(name=str(number), source="pass") for number in range(trust.MOST_TO_READ + 1)}
    with pytest.raises(RunError, match=r"its 1001 problems would run with your rights.*give --trust") as refused:
        admit_suite(problems, "/a/suite", Consent(to_read=tmp_path))
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
    admit_suite(problems, "/a/suite", Consent(trust=True, to_read=tmp_path))


def test_problems_are_written_out_without_a_scan_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[Path] = []
    monkeypatch.setattr(durable, "_remove_leftovers", scanned.append)
    problems = {f"a/{number}": Problem(name=str(number), source=f"# {number}") for number in range(10)}
    with pytest.raises(RunError, match="first, then give --trust"):
        admit_suite(problems, "/a/suite", Consent(to_read=tmp_path))
    assert scanned == []
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == 10


@pytest.mark.parametrize(
    ("options", "flag", "consent"),
    [
        ({"unsafe": True}, "--unsafe", Consent(trust=True, unsafe=True)),
        ({"unsafe": 1}, "--unsafe", Consent(trust=True, unsafe=True)),
        ({"model": "openai:m@http://there"}, "-m openai:m@http://there", None),
        ({"model": "openai:m"}, "-m openai:m", Consent(trust=True, models=frozenset({"openai:m"}))),
        ({"analyst": "replay:/home/x"}, "--analyst replay:/home/x", None),
        ({"model": "scripted:/etc/passwd"}, "-m scripted:/etc/passwd", None),
        ({"platform_dirs": "/there"}, "--platform-dir /there", None),
    ],
)
def test_what_widens_rights_is_not_part_of_trust(
    theirs: Any, key: Key, options: dict[str, object], flag: str, consent: Consent | None
) -> None:
    run = theirs(**options)
    with pytest.raises(RunError) as refused:
        run.admit(key, Consent(trust=True))
    assert flag in str(refused.value)
    assert "\n" not in str(refused.value)
    if consent is not None:
        run.admit(key, consent)


def test_a_folder_of_platforms_is_meant_whatever_its_spelling(tmp_path: Path) -> None:
    (tmp_path / "platforms").mkdir()
    given = Consent(platform_dirs=(tmp_path / "platforms" / ".." / "platforms",))
    admit_options(PLAIN, (str(tmp_path / "platforms"),), "there", given)


def test_a_suite_of_others_needs_trust() -> None:
    problems = {"a/b": Problem(name="b", source="pass")}
    with pytest.raises(RunError, match="its 1 problems would run with your rights"):
        admit_suite(problems, "there", Consent())
    admit_suite(problems, "there", Consent(trust=True))

"""The user's key: made once, readable by nobody else, and only its own signatures are right. (cause: receipts)"""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from kforge.errors import InputError, RunError
from kforge.records import Evaluation
from kforge.store import Key, RunFolder
from kforge.store.signature import canonical

if TYPE_CHECKING:
    from pathlib import Path


def test_a_signature_is_right_for_its_content_purpose_and_key_only(tmp_path: Path) -> None:
    key, other = Key(tmp_path / "one"), Key(tmp_path / "other")
    signature = key.sign("run", b"content")
    assert signature is not None
    assert key.has_signed("run", b"content", signature)
    assert Key(tmp_path / "one").has_signed("run", b"content", signature)
    assert not key.has_signed("run", b"contents", signature)
    assert not key.has_signed("suite", b"content", signature)
    assert not other.has_signed("run", b"content", signature)
    other.sign("run", b"content")
    assert not other.has_signed("run", b"content", signature)
    for wrong in (None, "", signature[:-1], "é" * 64):
        assert not key.has_signed("run", b"content", wrong)


def test_the_key_is_the_users_alone(tmp_path: Path) -> None:
    Key(tmp_path / "state").sign("run", b"")
    path = tmp_path / "state" / "signing.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["signing.key"]


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = Key(tmp_path)
    signature = key.sign("run", b"")
    key.path.chmod(0o644)
    with pytest.raises(InputError, match=r"open to others \(mode 644\)"):
        key.has_signed("run", b"", signature)
    with pytest.raises(InputError, match="open to others"):
        key.sign("run", b"")


def test_a_key_that_is_a_link_or_no_key_signs_nothing(tmp_path: Path) -> None:
    """A planted link would let others choose the key."""
    (tmp_path / "theirs").write_text("0" * 64)
    (tmp_path / "theirs").chmod(0o600)
    key = Key(tmp_path / "state")
    key.path.parent.mkdir()
    key.path.symlink_to(tmp_path / "theirs")
    assert key.sign("run", b"") is None
    key.path.unlink()
    key.path.write_text("short")
    key.path.chmod(0o600)
    assert key.sign("run", b"") is None


def test_processes_that_make_it_at_once_have_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        signatures = set(pool.map(lambda _: Key(tmp_path).sign("run", b""), range(32)))
    assert len(signatures) == 1
    assert None not in signatures


def test_without_a_place_for_a_key_runs_are_made_without_signature(tmp_path: Path, header: Any) -> None:
    (tmp_path / "file").write_text("")
    key = Key(tmp_path / "file" / "state")
    run = RunFolder.create(tmp_path / "runs", header(), key)
    assert not run.is_signed(key)
    assert not (run.path / "signature").exists()


def test_runs_and_attempts_are_signed_as_they_are_on_disk(tmp_path: Path, header: Any, attempt: Any) -> None:
    key = Key(tmp_path / "state")
    run = RunFolder.create(tmp_path / "runs", header(), key)
    with run.writing():
        run.commit(attempt(0, speedup=1.2))
        run.commit(attempt(1, speedup=1.3))
    again = RunFolder.open(run.path)
    assert again.is_signed(key)
    assert again.is_attempt_signed(0, key)
    os.replace(run.path / "attempts/000/attempt.json", run.path / "attempts/001/attempt.json")  # noqa: PTH105
    os.replace(run.path / "attempts/000/signature", run.path / "attempts/001/signature")  # noqa: PTH105
    assert not again.is_attempt_signed(1, key)
    (run.path / "run.json").write_bytes((run.path / "run.json").read_bytes() + b"\n")
    assert not RunFolder.open(run.path).is_signed(key)


def test_the_form_that_is_signed_has_no_signature_and_no_order() -> None:
    assert canonical({"b": 1, "a": [1.5, "é"], "signature": "x"}) == canonical({"a": [1.5, "é"], "b": 1})


def planted(path: Path, record: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.to_json(indent=2))


def test_a_stage_that_nobody_signed_is_done_again(tmp_path: Path, header: Any, attempt: Any) -> None:
    """Cause: any stage file in the folder was believed, and what was read from it was signed with the attempt."""
    key = Key(tmp_path / "state")
    run = RunFolder.create(tmp_path / "runs", header(), key)
    theirs, ours = attempt(0, speedup=50.0), attempt(0, speedup=1.1)
    digest = ours.candidate.digest
    planted(run.path / "attempts/000/evaluation.json", theirs.evaluation)
    with run.writing():
        assert run.stage(0, "evaluation", Evaluation, digest) is None
        run.put_stage(0, "evaluation", ours.evaluation, digest)
        assert run.stage(0, "evaluation", Evaluation, digest) == ours.evaluation
        with pytest.raises(RunError, match="already exists with other content"):
            run.put_stage(0, "evaluation", theirs.evaluation, digest)
    again = RunFolder.open(run.path)
    again.hold_to(key)
    assert again.stage(0, "evaluation", Evaluation, digest) == ours.evaluation
    assert again.stage(0, "evaluation", Evaluation, "another program's") is None  # a reply that was edited since
    os.replace(run.path / "attempts/000/evaluation.json", run.path / "attempts/000/replication_1.json")  # noqa: PTH105
    os.replace(run.path / "attempts/000/evaluation.signature", run.path / "attempts/000/replication_1.signature")  # noqa: PTH105
    assert again.stage(0, "replication_1", Evaluation, digest) is None


def test_a_stage_of_a_run_of_others_is_done_again(tmp_path: Path, header: Any, attempt: Any) -> None:
    """Cause: as above; that the user let the problem run says nothing about a verdict."""
    run = RunFolder.create(tmp_path / "runs", header(), Key(tmp_path / "theirs"))
    with run.writing():
        run.put_stage(0, "evaluation", attempt(0, speedup=50.0).evaluation)
    run.hold_to(Key(tmp_path / "ours"))
    assert run.stage(0, "evaluation", Evaluation) is None


def test_an_outcome_that_nobody_signed_is_none_in_our_own_run(
    tmp_path: Path, header: Any, attempt: Any, outcome: Any
) -> None:
    """Cause: the outcome was not signed, and whatever result.json held was believed."""
    key = Key(tmp_path / "state")
    run = RunFolder.create(tmp_path / "runs", header(), key)
    with run.writing():
        run.commit(attempt(0, speedup=1.2))
        planted(run.path / "result.json", outcome(0, stopped="as I please"))
        assert run.outcome() is None
        assert run.status() == "interrupted"
        assert not run.is_all_signed(key)
        run.finish(outcome(0))
    again = RunFolder.open(run.path)
    assert again.is_all_signed(key)
    assert again.hold_to(key)
    assert again.outcome() == outcome(0)
    planted(run.path / "result.json", outcome(0, stopped="as I please"))
    assert again.outcome() is None
    assert RunFolder.open(run.path).outcome() == outcome(0, stopped="as I please")  # to be shown as somebody else's


def test_an_outcome_that_was_removed_is_missed(tmp_path: Path, header: Any, attempt: Any, outcome: Any) -> None:
    """Cause: without its outcome, which disproved an attempt, a run was shown as the user's own and interrupted."""
    key = Key(tmp_path / "state")
    run = RunFolder.create(tmp_path / "runs", header(), key)
    with run.writing():
        run.commit(attempt(0, speedup=1.2))
        assert run.is_all_signed(key), "it is not finished yet"
        run.finish(outcome(0))
        run.finish(outcome(0))
    assert RunFolder.open(run.path).is_all_signed(key)
    for name in ("result.json", "result.signature"):
        (run.path / name).unlink()
    again = RunFolder.open(run.path)
    assert not again.is_all_signed(key)
    assert again.hold_to(key), "it can still be resumed"
    with again.writing():
        again.finish(outcome(0))
    assert RunFolder.open(run.path).is_all_signed(key)


def test_a_run_of_others_is_not_signed_by_finishing_it(tmp_path: Path, header: Any, attempt: Any, outcome: Any) -> None:
    run, key = RunFolder.create(tmp_path / "runs", header()), Key(tmp_path / "state")
    assert not run.hold_to(key)
    with run.writing():
        run.commit(attempt(0, speedup=1.2))
        run.finish(outcome(0))
    assert not RunFolder.open(run.path).is_signed(key)


def test_an_attempt_is_verified_by_the_bytes_that_are_used(tmp_path: Path, header: Any, attempt: Any) -> None:
    """Cause: the signature was checked on one read of attempt.json, and another read was used."""
    key = Key(tmp_path / "state")
    run = RunFolder.create(tmp_path / "runs", header(), key)
    with run.writing():
        run.commit(attempt(0, speedup=1.2))
    assert run.best() == attempt(0, speedup=1.2)
    planted(run.path / "attempts/000/attempt.json", attempt(0, speedup=50.0))  # after any earlier check
    with pytest.raises(RunError, match=r"attempt\.json was not made by you on this machine"):
        run.best()

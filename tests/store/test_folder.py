from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kforge.errors import RunError
from kforge.records import Candidate, Evaluation, HeadToHead, Replication
from kforge.store import RunFolder
from kforge.store.folder import run_paths


def one_line(caught: pytest.ExceptionInfo[Exception]) -> str:
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def test_a_new_run_is_whole_and_can_be_opened_again(tmp_path: Path, header: Any, tree: Any) -> None:
    began = header()
    folder = RunFolder.create(tmp_path / "deep" / "runs", began)
    again = RunFolder.open(folder.path)
    assert again.header == began
    assert again.id == folder.path.name == began.id
    assert again.attempts() == ()
    assert again.outcome() is None
    assert again.best() is None
    assert again.best_path is None
    assert again.exchange.is_dir()
    assert tree(folder.path)["problem.py"] == began.problem.source.encode()
    with pytest.raises(RunError, match="already exists"):
        RunFolder.create(tmp_path / "deep" / "runs", began)


def test_an_attempt_lives_in_stages_and_is_then_committed(tmp_path: Path, header: Any, attempt: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    first = attempt(0, speedup=1.2)
    with folder.writing():
        assert folder.stage(0, "evaluation", Evaluation) is None
        folder.put_stage(0, "evaluation", first.evaluation)
        folder.put_stage(0, "evaluation", first.evaluation)
        assert folder.stage(0, "evaluation", Evaluation) == first.evaluation
        with pytest.raises(RunError, match="stage 'evaluation' of attempt 0 already exists with other content"):
            folder.put_stage(0, "evaluation", attempt(0).evaluation)
        with pytest.raises(RunError, match="attempt 1 cannot be written now: attempt 0 is in progress"):
            folder.put_stage(1, "candidate", first.candidate)
        assert folder.attempts() == ()

        folder.commit(first)
        folder.commit(first)
        assert folder.attempts() == (first,)
        with pytest.raises(RunError, match="attempt 0 already exists with other content"):
            folder.commit(attempt(0, speedup=1.3))
        assert (folder.path / "attempts/000/candidate.py").read_bytes() == first.candidate.source.encode()
        with pytest.raises(RunError, match="attempt 2 cannot be written now: attempt 1 is in progress"):
            folder.commit(attempt(2))
        folder.put_stage(0, "replication_1", first.evaluation)  # it is looked at again
        with pytest.raises(RunError, match="attempt 2 cannot be written now"):
            folder.put_stage(2, "profile", first.candidate)
    assert RunFolder.open(folder.path).attempts() == (first,)


def faster_than(rival: int) -> dict[str, Any]:
    """Return what an attempt records that was faster than another one when the two were timed together."""
    return {"rival": rival, "head_to_head": HeadToHead(finding="faster")}


def test_only_what_was_faster_beside_the_best_replaces_it(
    tmp_path: Path, header: Any, attempt: Any, outcome: Any
) -> None:
    folder = RunFolder.create(tmp_path, header())
    attempts = [
        attempt(0, speedup=None),
        attempt(1, speedup=1.5),
        attempt(2, speedup=0.8).model_copy(update=faster_than(1)),  # speedups over eager are not compared
        attempt(3, speedup=1.5),
        attempt(4, speedup=2.0).model_copy(update={"rival": 2, "head_to_head": HeadToHead(finding="undecided")}),
    ]
    expected = [None, 1, 2, 2, 2]
    with folder.writing():
        for each, best in zip(attempts, expected, strict=True):
            folder.commit(each)
            found = folder.best()
            assert (found.index if found else None) == best
            assert (folder.best_path is None) == (best is None)
            if folder.best_path is not None:
                assert folder.best_path.read_bytes() == found.candidate.source.encode()
        folder.finish(outcome(best=3))
    assert folder.best() == attempt(3, speedup=1.5)
    assert folder.best_path is not None
    assert folder.best_path.read_text().startswith("# candidate 3")


def test_what_is_reported_of_the_best_is_what_its_repetitions_say(
    tmp_path: Path, header: Any, attempt: Any, outcome: Any
) -> None:
    folder = RunFolder.create(tmp_path, header())
    assert (folder.reported(), folder.summary().finding) == (None, None)
    repeated = Replication(evaluations=tuple(attempt(0, speedup=speedup).evaluation for speedup in (1.3, 1.3, 1.3)))
    with folder.writing():
        folder.commit(attempt(0, speedup=1.7))
        reported = folder.reported()
        assert reported == attempt(0, speedup=1.7).evaluation, "while there are none, it is its only evaluation"
        folder.finish(outcome(best=0, replication=repeated))
    reported = folder.reported()
    assert reported is not None
    assert reported.correct is not None
    assert reported.correct.timing.speedup.median == pytest.approx(1.3)
    assert reported.correct.timing.pairs == 300
    assert reported.receipt == attempt(0, speedup=1.7).evaluation.receipt
    summary = folder.summary()
    assert summary.speedup == reported.correct.timing.speedup
    assert (summary.finding, summary.doubt, summary.no_kernel) == ("faster", None, None)


def test_why_there_is_no_kernel_is_in_the_summary(tmp_path: Path, header: Any, attempt: Any, outcome: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, speedup=1.7).model_copy(update={"unchanged": "it cannot be traced"}))
        folder.finish(outcome(best=None, no_kernel="it cannot be traced"))
    assert (folder.summary().speedup, folder.summary().no_kernel) == (None, "it cannot be traced")
    assert folder.best_path is None


def test_an_outcome_of_an_earlier_kforge_opens(tmp_path: Path, header: Any, attempt: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, speedup=1.7))
    (folder.path / "result.json").write_text(
        '{"stopped": "1 iteration done", "best": 0, "disproved": [], "usage": {"requests": 0, "input_tokens": 0,'
        ' "output_tokens": 0}, "seconds": 4.5}'
    )
    found = folder.outcome()
    assert found is not None
    assert (found.seconds, found.session_seconds, found.no_kernel) == (4.5, None, None)


def test_a_writer_mends_a_best_that_a_kill_left_behind(tmp_path: Path, header: Any, attempt: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, speedup=1.2))
        folder.commit(attempt(1, speedup=1.4).model_copy(update=faster_than(0)))
    (folder.path / "best.py").write_text("# candidate 0, from before the kill")
    with folder.writing():
        assert folder.best_path is not None
        assert folder.best_path.read_text().startswith("# candidate 1")


def test_a_finished_run_stays_as_it_is(tmp_path: Path, header: Any, attempt: Any, outcome: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, failed=True))
        with pytest.raises(RunError, match="attempt 0 cannot be the best"):
            folder.finish(outcome(best=0))
        folder.finish(outcome(best=None))
        folder.finish(outcome(best=None))
        with pytest.raises(RunError, match="its outcome already exists with other content"):
            folder.finish(outcome(best=None, stopped="otherwise"))
        with pytest.raises(RunError, match=r"is finished \(5 iterations done\)"):
            folder.commit(attempt(1))
        with pytest.raises(RunError, match="is finished"):
            folder.put_stage(1, "candidate", attempt(1).candidate)
    assert folder.outcome() == outcome(best=None)


def test_an_outcome_may_not_pass_over_what_is_correct(tmp_path: Path, header: Any, attempt: Any, outcome: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, speedup=0.5))
        with pytest.raises(RunError, match=r"attempt None cannot be the best; the correct attempts are \[0\]"):
            folder.finish(outcome(best=None))


def test_writing_needs_the_lock(tmp_path: Path, header: Any, attempt: Any, outcome: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    for write in (
        lambda: folder.commit(attempt(0)),
        lambda: folder.put_stage(0, "candidate", attempt(0).candidate),
        lambda: folder.finish(outcome(best=None)),
    ):
        with pytest.raises(RuntimeError, match="writing"):
            write()
    with folder.writing():
        pass
    with pytest.raises(RuntimeError, match="writing"):
        folder.commit(attempt(0))


@pytest.mark.parametrize("name", ["attempt", "", "../evil", "a/b", "Candidate", "a.b"])
def test_a_stage_has_a_plain_name(tmp_path: Path, header: Any, attempt: Any, name: str) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing(), pytest.raises(ValueError, match="name for a stage"):
        folder.put_stage(0, name, attempt(0).candidate)


def test_status_and_summary(tmp_path: Path, header: Any, attempt: Any, outcome: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    assert folder.status() == "interrupted"
    with folder.writing():
        assert RunFolder.open(folder.path).status() == "running"
        folder.commit(attempt(0, speedup=2.0))
        folder.finish(outcome(best=0))
        assert folder.status() == "finished"
    summary = folder.summary()
    assert (summary.problem, summary.platform, summary.attempts) == ("softmax scale", "null", 1)
    assert summary.stopped == "5 iterations done"
    assert summary.speedup == attempt(0, speedup=2.0).speedup


# --- what is not a run --------------------------------------------------------------------------------------


def test_what_is_not_a_run_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no such folder") as caught:
        RunFolder.open(tmp_path / "nowhere")
    one_line(caught)
    with pytest.raises(RunError, match=r"is not a run: it has no run\.json") as caught:
        RunFolder.open(tmp_path)
    one_line(caught)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "kforge cannot read its run.json"),
        (b'{"format": 1, "id": "x"', "kforge cannot read its run.json"),
        (b"\xff\xfe", "kforge cannot read its run.json"),
        (b"[1]", "kforge cannot read its run.json"),
        (b'{"name": "somebody else"}', "kforge cannot read its run.json"),
        (b'{"format": 2}', "newer kforge"),
        (b'{"format": 1, "id": "x"}', r"run\.json is damaged: created: is missing"),
    ],
)
def test_a_foreign_or_damaged_header_is_said_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=reason) as caught:
        RunFolder.open(tmp_path)
    one_line(caught)


@pytest.mark.parametrize("name", ["../../../escaped", "/tmp/escaped", "", ".", "..", "a/b", "a\\b", "a\nb", "é" * 200])
def test_an_id_that_is_no_plain_name_is_refused(tmp_path: Path, header: Any, name: str) -> None:
    """Cause: an export in another suite's format is written to a folder of this name."""
    folder = RunFolder.create(tmp_path, header())
    said = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps(said | {"id": name}))
    with pytest.raises(RunError, match=r"run\.json is damaged: id: ") as caught:
        RunFolder.open(folder.path)
    one_line(caught)


def test_a_run_in_a_renamed_folder_is_read(tmp_path: Path, header: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    renamed = folder.path.rename(tmp_path / "the good one")
    assert RunFolder.open(renamed).id == folder.id


def test_damaged_attempts_are_said_in_one_line(tmp_path: Path, header: Any, attempt: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        for index in range(3):
            folder.commit(attempt(index))
    path = folder.path / "attempts" / "001" / "attempt.json"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=r"001/attempt\.json is damaged") as caught:
        folder.attempts()
    one_line(caught)
    path.write_bytes((folder.path / "attempts" / "002" / "attempt.json").read_bytes())
    with pytest.raises(RunError, match=r"001/attempt\.json is damaged: it contains attempt 2"):
        folder.attempts()
    path.unlink()
    with pytest.raises(RunError, match="attempt 1 is missing"):
        folder.attempts()


def test_a_half_created_run_does_not_disturb(tmp_path: Path, header: Any) -> None:
    (tmp_path / "20260101-000000-torn-aaaa" / "attempts").mkdir(parents=True)
    (tmp_path / "stray.txt").write_text("x")
    folder = RunFolder.create(tmp_path, header())
    assert run_paths(tmp_path) == [folder.path]
    with pytest.raises(RunError, match="no run '20260101'"):
        RunFolder.find(tmp_path, "20260101")


def test_a_run_is_found_by_path_id_or_beginning(tmp_path: Path, header: Any) -> None:
    one = RunFolder.create(tmp_path, header().model_copy(update={"id": "2026-one"}))
    two = RunFolder.create(tmp_path, header().model_copy(update={"id": "2026-one-more"}))
    for name, expected in ((str(one.path), one), ("2026-one", one), ("2026-one-", two), ("2026-one-more", two)):
        assert RunFolder.find(tmp_path, name).id == expected.id
    with pytest.raises(RunError, match="any of 2 runs, the latest being 2026-one-more"):
        RunFolder.find(tmp_path, "2026")
    for name in ("", "2027", "../2026-one"):
        with pytest.raises(RunError, match="no run"):
            RunFolder.find(tmp_path, name)
    with pytest.raises(RunError, match="no run"):
        RunFolder.find(tmp_path / "nowhere", "2026")


# --- weights, locks and full disks --------------------------------------------------------------------------


def test_the_weights_of_a_live_module_travel_with_the_run(tmp_path: Path, header: Any) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"\x00weights\xff")
    began = header()
    problem = began.problem.model_copy(update={"state_path": str(weights), "state_digest": "d" * 64})
    folder = RunFolder.create(tmp_path / "here", began.model_copy(update={"problem": problem}))
    weights.unlink()
    (tmp_path / "there").mkdir()
    carried = RunFolder.open(folder.path.rename(tmp_path / "there" / folder.id))
    state = Path(str(carried.header.problem.state_path))
    assert state.read_bytes() == b"\x00weights\xff"
    assert state.is_relative_to(tmp_path / "there")
    assert carried.header.problem.digest == problem.digest
    state.unlink()
    with pytest.raises(RunError, match=r"state\.pt is missing"):
        RunFolder.open(carried.path)


def test_weights_have_a_whole_path_where_the_run_is_named_by_a_relative_one(
    tmp_path: Path, header: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cause: the process that reads them has another working directory."""
    began = header()
    (tmp_path / "weights.pt").write_bytes(b"weights")
    weights = {"state_path": str(tmp_path / "weights.pt"), "state_digest": "d" * 64}
    run = RunFolder.create(tmp_path, began.model_copy(update={"problem": began.problem.model_copy(update=weights)}))
    monkeypatch.chdir(tmp_path)
    assert RunFolder.open(Path(run.id)).header.problem.state_path == str(run.path / "state.pt")


@pytest.mark.parametrize("missing", ["state_path", "state_digest"])
def test_weights_without_their_digest_are_refused(tmp_path: Path, header: Any, missing: str) -> None:
    """Cause: the path is no part of the problem's identity; only the digest says which weights are meant."""
    run = RunFolder.create(tmp_path, header())
    (run.path / "state.pt").write_bytes(b"weights")
    document = json.loads((run.path / "run.json").read_text())
    document["problem"] |= {"state_path": "state.pt", "state_digest": "d" * 64}
    del document["problem"][missing]
    (run.path / "run.json").write_text(json.dumps(document))
    with pytest.raises(RunError, match="needs both the weights and their digest"):
        RunFolder.open(run.path)


def test_the_best_program_is_named_only_by_a_file_that_holds_it(
    tmp_path: Path, header: Any, attempt: Any, outcome: Any
) -> None:
    """Cause: best.py was named unread, and may be another program than the one that was measured."""
    run = RunFolder.create(tmp_path, header())
    with run.writing():
        run.commit(attempt(0, speedup=2.0))
        run.finish(outcome(0))
    assert run.best_path == run.path / "best.py"
    (run.path / "best.py").write_text("import os\n")
    assert run.best_path == run.path / "attempts" / "000" / "candidate.py"
    (run.path / "attempts" / "000" / "candidate.py").unlink()
    assert run.best_path is None


def test_an_outcome_whose_best_was_never_timed_is_refused(
    tmp_path: Path, header: Any, attempt: Any, outcome: Any
) -> None:
    run = RunFolder.create(tmp_path, header())
    with run.writing():
        run.commit(attempt(0))
    (run.path / "result.json").write_text(outcome(0).to_json())
    with pytest.raises(RunError, match="its best attempt 0 is not correct"):
        run.best()


def test_missing_weights_leave_no_folder_behind(tmp_path: Path, header: Any) -> None:
    began = header()
    problem = began.problem.model_copy(update={"state_path": str(tmp_path / "none.pt"), "state_digest": "d" * 64})
    with pytest.raises(RunError, match="No such file") as caught:
        RunFolder.create(tmp_path / "runs", began.model_copy(update={"problem": problem}))
    one_line(caught)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_second_writer_is_told_who_the_first_is(tmp_path: Path, header: Any) -> None:
    folder = RunFolder.create(tmp_path, header())
    code = (
        "import sys; from pathlib import Path; from kforge.store import RunFolder\n"
        "with RunFolder.open(Path(sys.argv[1])).writing():\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, folder.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        with pytest.raises(RunError) as caught, folder.writing():
            pass
        assert str(caught.value) == f"run {folder.id} is in use by process {writer.pid}"
        assert folder.status() == "running"
        writer.kill()
    with folder.writing():
        assert folder.status() == "running"


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, header: Any, attempt: Any, tree: Any) -> None:
    """A limit on file size stands for the full disk: the same system call fails, at the same place."""
    folder = RunFolder.create(tmp_path, header())
    with folder.writing():
        folder.commit(attempt(0, speedup=1.5))
    before = tree(folder.path)
    large = attempt(1).model_copy(update={"candidate": Candidate(source="#" * 100_000, platform="null")})
    (tmp_path / "attempt.json").write_text(large.to_json())
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from kforge.errors import RunError; from kforge.records import Attempt\n"
        "from kforge.store import RunFolder\n"
        "attempt = Attempt.from_json(Path(sys.argv[2]).read_bytes())\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "folder = RunFolder.open(Path(sys.argv[1]))\n"
        "with folder.writing():\n"
        "    for write in (folder.commit, lambda a: folder.put_stage(1, 'candidate', a.candidate)):\n"
        "        try: write(attempt)\n"
        "        except RunError as error: print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, folder.path, tmp_path / "attempt.json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = ran.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("cannot write ") and line.endswith(": File too large") for line in lines)
    assert tree(folder.path) == before
    assert not list(folder.path.rglob("*.tmp"))
    with folder.writing():
        folder.commit(attempt(1))
    assert len(folder.attempts()) == 2


def test_a_root_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, header: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot begin run") as caught:
        RunFolder.create(tmp_path / "file" / "runs", header())
    one_line(caught)

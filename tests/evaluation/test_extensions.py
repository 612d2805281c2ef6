"""`load_inline` candidates: built by torch, kept per program, with errors a reader can use."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from kforge import platforms, problems
from kforge.evaluation import Judge
from kforge.evaluation.extensions import build_log
from kforge.records import Candidate


def test_only_torchs_build_errors_are_taken_for_such() -> None:
    assert build_log(RuntimeError("CUDA out of memory")) is None
    assert build_log(ValueError("Error building extension")) is None


def test_a_build_error_keeps_the_compilers_lines_and_no_path() -> None:
    message = textwrap.dedent("""\
        Error building extension 'fast': [1/2] c++ -MMD -I/somewhere/include -c /home/me/x/main.cpp -o main.o
        FAILED: main.o
        /home/me/x/main.cpp: In function 'int f()':
        /home/me/x/main.cpp:5:12: error: 'sofmax' is not a member of 'torch'
            5 |     return torch::sofmax(x);
              |                   ^~~~~~
        ninja: build stopped: subcommand failed.
    """)
    log = build_log(RuntimeError(message))
    assert log is not None
    assert log.splitlines()[0] == "kernel.cpp:5:12: error: 'sofmax' is not a member of 'torch'"
    assert "torch::sofmax(x)" in log
    assert "/home/me" not in log


def test_a_stale_lock_is_removed_and_a_live_one_waited_for(tmp_path: Path) -> None:
    """The baton of a killed build is removed; but not while the process that holds our lock lives."""
    (tmp_path / "fast").mkdir()
    (tmp_path / "fast" / "lock").touch()
    code = f"""
import sys, time
from pathlib import Path
from kforge.evaluation.extensions import kept_in
with kept_in(Path({str(tmp_path)!r})):
    assert not Path({str(tmp_path / "fast" / "lock")!r}).exists()
    Path({str(tmp_path / "fast" / "lock")!r}).touch()
    print("holding", flush=True)
    sys.stdin.readline()
    Path({str(tmp_path / "fast" / "lock")!r}).unlink()
print("done", flush=True)
"""
    arguments = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, **pipes) as first:  # type: ignore[call-overload]
        assert first.stdout.readline() == "holding\n"
        with subprocess.Popen(arguments, **pipes) as second:  # type: ignore[call-overload]
            first.stdin.write("\n")
            first.stdin.flush()
            assert first.stdout.readline() == "done\n"
            assert second.stdout.readline() == "holding\n"
            second.kill()
    with subprocess.Popen(arguments, **pipes) as third:  # type: ignore[call-overload]
        assert third.stdout.readline() == "holding\n"
        third.communicate("\n")
    assert third.returncode == 0


def test_a_load_inline_candidate_is_built_once_and_judged(root: Path, tmp_path: Path) -> None:
    problem = problems.load(root / "examples/softmax_scale/problem.py", ["ROWS=64"])
    source = (root / "tests/evaluation/candidates/load_inline_softmax.py").read_text()
    with Judge(
        platforms.find("cpu"), cache=tmp_path, environment={"PATH": os.environ["PATH"]}, compile_baseline=False
    ) as judge:
        built = []
        for _ in range(2):
            evaluation = judge.evaluate(problem, Candidate(source=source, platform="cpu"))
            assert evaluation.correct is not None, evaluation.verdict
            built += [(path, path.stat().st_mtime_ns) for path in tmp_path.rglob("scaled_softmax.so")]
    assert len(built) == 2
    assert built[0] == built[1]

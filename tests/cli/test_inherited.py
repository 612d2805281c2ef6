"""What a user's shell or program leaves wrong: closed standard streams, and an ignored SIGCHLD."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REPAIRED = """
import os, signal, socket, sys
from kforge.cli import inherited
inherited.repair()
with socket.socket() as one, socket.socket() as two:
    facts = min(one.fileno(), two.fileno()) > 2, signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
print("printed")
print("printed", file=sys.stderr, flush=True)
open(sys.argv[1], "w").write(repr((*facts, sys.stdin.read())))
"""
JUDGED = """
import os, sys
from pathlib import Path
from kforge import platforms
from kforge.evaluation import Judge
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy, Problem
source = sys.argv[2]
candidate = Candidate(source=source.replace("class Model(", "class ModelNew("), platform="null")
for _ in range(2):
    with Judge(
        platforms.find("null"), EvaluationPolicy(compile_baseline=False), cache=Path(sys.argv[1]),
        environment=dict(os.environ), limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.1),
    ) as judge:
        print(judge.evaluate(Problem(name="tiny", source=source), candidate).verdict.state)
"""


def closing(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for descriptor in descriptors:
            os.close(descriptor)

    return close


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2), ()], ids=str)
def test_streams_are_open_and_children_can_be_waited_for(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """Cause: sockets got the numbers of closed streams, and children were reaped by the kernel."""
    command = [sys.executable, "-c", REPAIRED, str(tmp_path / "facts")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, preexec_fn=closing(*closed), check=False, timeout=60)
    assert done.returncode == 0
    assert (tmp_path / "facts").read_text() == "(True, True, '')"


@pytest.mark.parametrize(("arguments", "status"), [(["show", "none"], 2), (["runs"], 0)])
@pytest.mark.parametrize("closed", [1, 2])
def test_the_exit_status_is_right_where_a_stream_is_closed(
    tmp_path: Path, clean_environment: dict[str, str], arguments: list[str], status: int, closed: int
) -> None:
    """Cause: printing on a closed stream raised AttributeError, and status 1 says that something was judged."""
    done = subprocess.run(
        [sys.executable, "-m", "kforge", *arguments], cwd=tmp_path, env=clean_environment, stdin=subprocess.DEVNULL,
        preexec_fn=closing(closed), check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status


def test_a_program_that_ignores_its_children_can_judge(
    tmp_path: Path, clean_environment: dict[str, str], tiny: Path
) -> None:
    """Cause: referees inherited that SIGCHLD is ignored, and could not tell how their workers ended.

    The second referee is a copy of another process than the first one.
    """
    done = subprocess.run(
        [sys.executable, "-c", JUDGED, str(tmp_path / "cache"), tiny.read_text()], cwd=tmp_path, env=clean_environment,
        capture_output=True, text=True, preexec_fn=closing(), check=False, timeout=240,
    )  # fmt: skip
    assert done.stdout.split() == ["correct", "correct"], done.stderr

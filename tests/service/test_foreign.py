"""References that clients send: judged as others are, and without the rights of the user who runs the server."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.service.conftest import PROBLEM, RIGHT, WRONG

from kforge import settings
from kforge.errors import EvaluationError, ProblemError, TookTooLong
from kforge.records import EvaluationPolicy
from kforge.service.evaluations import EvaluationService, ServiceOptions
from kforge.service.foreign.references import RunningCell, foreign_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

SPY = """
import os, pathlib, socket
from torch import nn

got = []


def tried(what, attempt):
    try:
        attempt()
    except Exception:
        return
    got.append(what)


tried("read a secret", lambda: pathlib.Path({secret!r}).read_text())
tried("list the runs", lambda: os.listdir({folder!r}))
tried("write beside them", lambda: pathlib.Path({folder!r}, "left").write_text("x"))
tried("reach a server", lambda: socket.create_connection(("127.0.0.1", {port}), 2))
tried("signal the server", lambda: os.kill({pid}, 0))
tried("become root", lambda: os.setuid(0))
tried("change an installed package", lambda: pathlib.Path(nn.__file__).write_text("x"))
tried("read the server's environment", lambda: pathlib.Path("/proc/{pid}/environ").read_bytes())


class Model(nn.Module):
    def forward(self, x):
        return x


def get_inputs():
    raise ValueError(f"got through: {{got}}")


def get_init_inputs():
    return []
"""


@pytest.fixture
def service(problems: Path, clean_environment: dict[str, str]) -> Iterator[EvaluationService]:
    policy = EvaluationPolicy(compile_baseline=False)
    options = ServiceOptions(problems=(str(problems),), platform="null", policy=policy)
    with EvaluationService(options, settings.load(clean_environment), private=[problems]) as opened:
        yield opened


@pytest.mark.slow
def test_a_foreign_reference_is_judged_and_gets_at_nothing(service: EvaluationService, tmp_path: Path) -> None:
    reference = foreign_problem("theirs", PROBLEM.replace("torch.relu(x", "torch.relu(2 * x"))
    right = RIGHT.replace("(x + self.shift)", "(2 * x + self.shift)")
    judged = service.evaluate_foreign(reference, right)
    assert judged.verdict.state == "correct"
    assert judged.receipt.sandbox.startswith(("namespaces", "landlock"))
    assert service.evaluate_foreign(reference, WRONG).verdict.state == "mismatch"
    assert service._foreign._cell is not None
    of_the_cell = descendants(service._foreign._cell._process.pid)
    assert len(of_the_cell) > 2

    secret = tmp_path / "secret"
    secret.write_text("of the user")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        spy = SPY.format(secret=str(secret), folder=str(tmp_path), port=port, pid=os.getpid())
        with pytest.raises(ProblemError, match=r"got through: \[\]"):
            service.evaluate_foreign(foreign_problem("spy", spy), RIGHT)
    assert not (tmp_path / "left").exists()
    must_end(of_the_cell)

    hung = foreign_problem("hung", PROBLEM.replace("return [32]", "import time; time.sleep(1e6)"))
    with pytest.raises(EvaluationError, match="took too long"):
        service._foreign.evaluate(hung, service.candidate(RIGHT), 3.0)
    died = foreign_problem("died", PROBLEM.replace("import torch\n", "import torch, os\nos.kill(-1, 9)\n", 1))
    with pytest.raises(EvaluationError, match="the cell of the reference has died"):
        service.evaluate_foreign(died, RIGHT)


@pytest.mark.slow
def test_a_cell_whose_reader_is_stopped_ends_with_its_request(service: EvaluationService) -> None:
    reference = foreign_problem("theirs", PROBLEM)
    assert service.evaluate_foreign(reference, RIGHT).verdict.state == "correct"
    cell = service._foreign._cell
    assert cell is not None
    inside = [pid for pid in descendants(cell._process.pid) if b"foreign.inside" in command_of(pid)]
    for pid in inside:
        os.kill(pid, signal.SIGSTOP)
    assert inside
    large = service.candidate(RIGHT + "#" + "x" * 900_000 + "\n")
    with pytest.raises(TookTooLong):
        service._foreign.evaluate(reference, large, 3.0)
    must_end(inside)
    assert service.evaluate_foreign(reference, RIGHT).verdict.state == "correct"


def test_last_words_are_the_end_of_a_log_of_any_size(tmp_path: Path) -> None:
    cell = RunningCell.__new__(RunningCell)
    cell._log = tmp_path / "log"
    cell._log.write_bytes(b"")
    assert cell.last_words() == ""
    cell._log.write_bytes(b"first\nlast\n")
    assert cell.last_words() == "last"
    with cell._log.open("r+b") as log:
        log.truncate(2**40)
        log.seek(0, os.SEEK_END)
        log.write(b"\nthe end\n")
    assert cell.last_words() == "the end"


def must_end(processes: Collection[int]) -> None:
    """The kernel ends the processes inside a cell, which takes a moment on a busy machine."""
    end = time.monotonic() + 20
    while any(map(command_of, processes)) and time.monotonic() < end:  # empty once a process has ended
        time.sleep(0.05)
    assert not any(map(command_of, processes))


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those that these have started."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


@pytest.mark.parametrize(
    ("source", "said"),
    [("class Model: pass", "does not define get_inputs or get_init_inputs"), ("(", "reference_code: is not valid")],
)
def test_what_is_no_reference_is_refused_by_its_text(source: str, said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        foreign_problem("theirs", source)


def test_a_reference_of_the_user_is_known(service: EvaluationService) -> None:
    assert service.known(PROBLEM) == "tiny"
    assert service.known(PROBLEM + "\n") is None

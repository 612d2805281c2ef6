"""Referees that are copies: quick to come by, none of them knows another's, and nothing of them is left behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kforge import platforms
from kforge.evaluation import Judge
from kforge.evaluation.processes import launch, work_folders
from kforge.evaluation.referee import fork_server
from kforge.evaluation.transport.channel import SideDied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kforge.evaluation.processes.launch import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch does not survive a fork")


@pytest.fixture
def servers() -> Iterator[fork_server.RefereeForkServers]:
    made = fork_server.RefereeForkServers()
    yield made
    made.close()


def environment(**more: str) -> dict[str, str]:
    return launch.common_environment(tool_path=os.environ["PATH"], threads=1, extra=more)


def parent(process: Process) -> int:
    return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_second_and_all_further_ones_are_copies(servers: fork_server.RefereeForkServers, tmp_path: Path) -> None:
    variables = [environment(), environment() | {"PATH": str(tmp_path)}, environment()]  # none of them uses a tool yet
    first, second, third = (
        servers.referee(tmp_path / str(n), each, work_folders.make) for n, each in enumerate(variables)
    )
    other = servers.referee(tmp_path / "other", environment(ELSE="1"), work_folders.make)
    try:
        assert parent(first) == parent(other) == os.getpid(), "the first of its environment is a new interpreter"
        assert parent(second) == parent(third) != os.getpid()
        assert b"kforge.evaluation.referee.fork_server" in Path(f"/proc/{parent(second)}/cmdline").read_bytes()
        os.kill(third.pid, signal.SIGKILL)
        with pytest.raises(SideDied):
            third.channel.receive(10.0)
        assert third.cause_of_death() == "was killed by SIGKILL"
        assert Path(f"/proc/{second.pid}").exists(), "one's end is not another's"
    finally:
        for each in (first, second, third, other):
            each.kill()
    assert not any(Path(f"/proc/{each.pid}").exists() for each in (second, third))


def test_a_referee_outlives_the_thread_that_asked_for_it_and_a_stem_that_died_is_replaced(
    servers: fork_server.RefereeForkServers, tmp_path: Path
) -> None:
    found: list[Process] = []

    def ask() -> None:
        found.extend(servers.referee(tmp_path / str(n), environment(), work_folders.make) for n in range(2))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    time.sleep(0.2)
    one, two = found
    assert Path(f"/proc/{two.pid}/cmdline").read_bytes(), "it is no zombie"
    os.kill(parent(two), signal.SIGKILL)
    with pytest.raises(SideDied):
        two.channel.receive(10.0)  # it goes with its stem
    instead = servers.referee(tmp_path / "instead", environment(), work_folders.make)
    after = servers.referee(tmp_path / "after", environment(), work_folders.make)
    assert parent(instead) == os.getpid()
    assert b"kforge.evaluation.referee.fork_server" in Path(f"/proc/{parent(after)}/cmdline").read_bytes()
    for each in (one, two, instead, after):
        each.kill()


def test_what_one_judge_is_told_no_other_knows(tmp_path: Path) -> None:
    """Neither does the process that they are copies of."""
    key = secrets.token_hex(16)
    path = {"PATH": os.environ["PATH"]}
    knows = []
    for given in (path, path | {"SOME_API_KEY": key}, path):
        with Judge(platforms.find("null"), cache=tmp_path, environment=given) as judge:
            judge.device()
            assert judge._referee is not None
            knows.append(remembers(judge._referee.pid, key))
            theirs = parent(judge._referee)
    assert knows == [False, True, False]
    assert theirs != os.getpid()
    assert not remembers(theirs, key)


def remembers(pid: int, text: str) -> bool:
    """Whether it is anywhere in the memory that a process may write."""
    sought = text.encode()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            low, high = (int(end, 16) for end in place.split("-"))
            with suppress(OSError, ValueError):  # some cannot be read
                memory.seek(low)
                if sought in memory.read(high - low):
                    return True
    return False


SCRIPT = """
import os, sys
from pathlib import Path
from kforge.evaluation.processes import launch
from kforge.evaluation.referee import fork_server
from kforge.evaluation.processes import work_folders
servers, folder = fork_server.RefereeForkServers(), Path(sys.argv[1])
environment = launch.common_environment(tool_path=os.environ["PATH"], threads=1, extra={})
first, second = (servers.referee(folder / name, environment, work_folders.make) for name in ("first", "second"))
first.kill()
print(second.pid, *Path(f"/proc/self/task/{os.getpid()}/children").read_text().split(), flush=True)
if len(sys.argv) > 2:
    os.kill(os.getpid(), 9)
second.channel.close()
"""


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_left_when_its_process_ends(tmp_path: Path, killed: bool) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    variables = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": launch.import_path()}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "work"), *(["kill"] if killed else [])]
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == (-signal.SIGKILL if killed else 0), ran.stderr
    referee, left = ran.stdout.split()
    end = time.monotonic() + 20.0
    while any(Path(f"/proc/{pid}").exists() for pid in (referee, left)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(f"/proc/{referee}").exists()
    assert not Path(f"/proc/{left}").exists()
    assert killed or not list(temporary.iterdir())


FORMULAS = """
import importlib.util, sys
from kforge.evaluation.referee import main
before = set(sys.modules)
main.import_flop_formulas()
from torch.utils.flop_counter import flop_registry
print(len(flop_registry), sorted(name for name in sys.modules if name.partition(".")[0] not in ("torch", *BEFORE)))
""".replace("BEFORE", "{name.partition('.')[0] for name in before}")


def test_torchs_flop_formulas_are_imported_without_other_packages() -> None:
    """Cause: with them every referee imported a kernel language (0.3 s) that counts no operator of a reference."""
    variables = {**os.environ, "PYTHONPATH": launch.import_path()}
    code = f"import torch\n{FORMULAS}\nimport json.tool; print('and others after it')"
    ran = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    counted, after = ran.stdout.splitlines()
    formulas, _, others = counted.partition(" ")
    assert int(formulas) > 20
    assert others == "[]"
    assert (after, ran.stderr) == ("and others after it", "")

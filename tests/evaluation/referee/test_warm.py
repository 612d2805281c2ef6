"""One stem for all commands: whose referees are its copies, who is not let in, and that nobody depends on it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.evaluation.kernel_layers import skip_if_missing

from kforge import platforms
from kforge.errors import InputError
from kforge.evaluation import Judge
from kforge.evaluation.processes import launch, work_folders
from kforge.evaluation.referee import fork_server, warm, warm_socket
from kforge.records import Candidate, EvaluationLimits, EvaluationPolicy, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import RunKforge

    from kforge.evaluation.processes.launch import Process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch does not survive a fork")


def environment(**more: str) -> dict[str, str]:
    return launch.common_environment(tool_path=os.environ["PATH"], threads=1, extra=more)


KEEP = """
import json, sys
from pathlib import Path
from kforge.evaluation.referee import warm
warm.share(Path(sys.argv[1]), json.loads(sys.argv[2]), lambda: print("ready", flush=True))
"""
COMMAND = """
import json, sys
from pathlib import Path
from kforge.evaluation.referee import fork_server
from kforge.evaluation.processes import work_folders
cache = Path(sys.argv[1])
servers = fork_server.RefereeForkServers()
print(servers.referee(cache / "work", json.loads(sys.argv[2]), work_folders.make, cache).pid, flush=True)
sys.stdin.readline()
"""


@contextmanager
def running(script: str, cache: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that knows a cache and this one's environment, and what it said first."""
    command = [sys.executable, "-P", "-c", script, str(cache), json.dumps(environment())]
    variables = {**os.environ, "PYTHONPATH": launch.import_path()}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=variables, text=True, **pipes) as process:  # type: ignore[call-overload]
        yield process, process.stdout.readline().strip()
        process.kill()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache whose user keeps a stem with this process's environment."""
    cache = tmp_path_factory.mktemp("cache")
    with running(KEEP, cache) as (_, said):
        assert said == "ready"
        yield cache


@pytest.fixture
def servers() -> Iterator[fork_server.RefereeForkServers]:
    made = fork_server.RefereeForkServers()
    yield made
    made.close()


def ancestors(pid: int) -> Iterator[str]:
    """The commands of a process and of those that it comes from."""
    while pid > 1:
        yield Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_copy(referee: Process) -> bool:
    return any(warm.WARM in command for command in ancestors(referee.pid))


def is_gone(pid: int) -> bool:
    end = time.monotonic() + 20.0
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()


def test_the_first_referee_is_its_copy_and_so_are_all_further_ones(
    kept: Path, servers: fork_server.RefereeForkServers, tmp_path: Path
) -> None:
    first, second = (servers.referee(tmp_path / str(n), environment(), work_folders.make, kept) for n in range(2))
    other = servers.referee(tmp_path / "other", environment(ELSE="1"), work_folders.make, kept)
    elsewhere = fork_server.RefereeForkServers().referee(
        tmp_path / "elsewhere", environment(), work_folders.make, tmp_path
    )
    try:
        assert is_copy(first)
        assert is_copy(second)
        assert not is_copy(other), "it would begin with another environment"
        assert not is_copy(elsewhere), "another cache is another user's"
    finally:
        for each in (first, second, other, elsewhere):
            each.kill()
    assert is_gone(first.pid)


def test_code_that_has_changed_finds_nobody(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = fork_server.begun_with(environment())
    found = warm_socket.knock(kept, variables)
    assert found is not None
    found.kill()
    monkeypatch.setattr(warm_socket, "__file__", str(copied_code(tmp_path)))
    assert warm_socket.knock(kept, variables) is None


def raise_niceness() -> None:
    os.nice(3)


def lower_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))


def use_one_processor() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@pytest.mark.parametrize(
    "change",
    [use_one_processor, *(pytest.param(more, marks=pytest.mark.volume) for more in (raise_niceness, lower_open_files))],
)
def test_a_command_with_other_limits_finds_nobody(change: Callable[[], None], tmp_path: Path) -> None:
    """Cause: `kforge warm` handed down its own processors, priority and limits to the referees of other commands."""
    if change is use_one_processor and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("this process has one processor already")
    script = "import sys\nfrom pathlib import Path\nfrom kforge.evaluation.referee import warm_socket\n"
    script += "print(warm_socket.place(Path(sys.argv[1]), {}))"
    command = [sys.executable, "-P", "-c", script, str(tmp_path)]
    variables = {**os.environ, "PYTHONPATH": launch.import_path()}
    ask = partial(subprocess.run, command, env=variables, text=True, capture_output=True, check=True)
    same, again, other = ask().stdout, ask().stdout, ask(preexec_fn=change).stdout
    assert same == again
    assert same != other


def copied_code(folder: Path) -> Path:
    """A copy of kforge with the times of its files; where its module `warm_socket` is."""
    module = folder / "kforge" / "evaluation" / "referee" / "warm_socket.py"
    module.parent.mkdir(parents=True)
    shutil.copytree(Path(warm_socket.__file__).parents[2], module.parents[2], dirs_exist_ok=True)
    time.sleep(0.05)  # the kernel's clock for files may tick every ten milliseconds
    return module


@pytest.mark.parametrize("change", ["touched", "edited", "swapped", "renamed"])
def test_every_change_of_code_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Cause: only the number of files and the newest time counted."""
    module = copied_code(tmp_path)
    other = module.with_name("warm.py")
    monkeypatch.setattr(warm_socket, "__file__", str(module))
    before = warm_socket.place(tmp_path, {})
    assert warm_socket.place(tmp_path, {}) == before
    was = module.stat()
    if change == "touched":
        module.touch()
    elif change == "edited":
        module.write_bytes(module.read_bytes().replace(b"a", b"b"))  # of the same size
        os.utime(module, ns=(was.st_atime_ns, was.st_mtime_ns))
    elif change == "swapped":
        module.rename(module.with_suffix(".aside"))
        other.rename(module)
        module.with_suffix(".aside").rename(other)
    else:
        module.rename(module.with_name("met.py"))
    assert warm_socket.place(tmp_path, {}) != before


def test_there_is_one_at_a_time(kept: Path) -> None:
    with pytest.raises(InputError, match="already"):
        warm.share(kept, environment(), lambda: None)
    place = warm_socket.place(kept, fork_server.begun_with(environment()))
    with pytest.raises(InputError, match="already"):
        warm_socket.open_at(place)
    warm_socket.clear(place)  # as one does that came too late
    found = warm_socket.knock(kept, fork_server.begun_with(environment()))
    assert found is not None
    found.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_let_in(kept: Path) -> None:
    """Neither by the folder, nor by the stem, were the folder open."""
    folder = warm_socket.place(kept, fork_server.begun_with(environment()))
    assert folder.stat().st_mode & 0o077 == 0
    script = """
import os, socket, sys
os.setuid(65534)
try:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    print("answered" if connection.recv(1) else "refused")
except OSError as error:
    print(type(error).__name__)
"""
    command = [sys.executable, "-c", script, str(folder / "warm.socket")]
    closed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert closed.stdout == "PermissionError\n"
    opened = [folder, *(parent for parent in folder.parents if parent.stat().st_mode & 0o001 == 0)]
    modes = {path: path.stat().st_mode for path in (*opened, folder / "warm.socket")}
    try:
        for path, mode in modes.items():
            path.chmod(mode | 0o777)
        let_in = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert let_in.stdout in ("refused\n", "ConnectionResetError\n")


REACHING = """
import socket
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        reach = socket.socket(socket.AF_UNIX)
        reach.connect({address!r})
        return x + 1 if reach.recv(1) else x
"""
PROBLEM = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(16)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("layer", ["namespaces", "landlock", "none"])
def test_no_worker_reaches_it_but_without_a_border(kept: Path, layer: str, tmp_path: Path) -> None:
    """A process that it made would be outside every border."""
    address = str(warm_socket.place(kept, fork_server.begun_with(environment())) / "warm.socket")
    problem = Problem(name="plus_one", source=PROBLEM)
    candidate = Candidate(source=REACHING.format(address=address), platform="null")
    bordered = layer != "none"
    with Judge(
        platforms.find("null"),
        EvaluationPolicy(unsafe=not bordered, compile_baseline=False),
        cache=tmp_path,
        environment=dict(os.environ),
        ladder=(layer,) if bordered else (),
        limits=EvaluationLimits(timing_seconds=0.1, timing_cap=0.2),
    ) as judge:
        try:
            verdict = judge.evaluate(problem, candidate).verdict
        except InputError:
            skip_if_missing(layer)
            raise
    assert verdict.state == ("runtime_error" if bordered else "correct"), verdict


def test_who_is_killed_leaves_nothing_and_who_keeps_it_may_go_at_any_time(
    tmp_path: Path, servers: fork_server.RefereeForkServers
) -> None:
    """Who is at work goes on, and later ones begin as if it had never been."""
    with running(KEEP, tmp_path) as (keeper, _), running(COMMAND, tmp_path) as (command, said):
        theirs, mine = int(said), servers.referee(tmp_path / "mine", environment(), work_folders.make, tmp_path)
        assert is_copy(mine)
        assert any(warm.WARM in each for each in ancestors(theirs))
        command.kill()
        assert is_gone(theirs)

        host = next(path for path in Path(f"/proc/{keeper.pid}/task/{keeper.pid}").glob("children")).read_text()
        keeper.kill()
        assert is_gone(int(host))
        again = servers.referee(tmp_path / "again", environment(), work_folders.make, tmp_path)
        later = fork_server.RefereeForkServers().referee(tmp_path / "later", environment(), work_folders.make, tmp_path)
        try:
            assert Path(f"/proc/{mine.pid}/cmdline").read_bytes(), "it is no zombie"
            assert warm.WARM in next(ancestors(again.pid)), "the copy that was made for us is still there"
            assert fork_server.REFEREE in next(ancestors(later.pid))
        finally:
            for each in (mine, again, later):
                each.kill()
    assert is_gone(mine.pid)


def test_what_a_killed_one_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "warm" / "0123456789abcdef"
    left.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(left / "warm.socket"))
    os.utime(left, (0, 0))
    young = tmp_path / "warm" / "fedcba9876543210"  # may be about to listen
    young.mkdir()
    warm_socket.sweep(tmp_path)
    assert list((tmp_path / "warm").iterdir()) == [young]


@pytest.mark.parametrize("name", ["documents", "0123456789abcdef"])
def test_nothing_behind_a_link_is_removed(tmp_path: Path, name: str) -> None:
    """Cause: `warm` in the cache led elsewhere, and every old folder there was removed."""
    kept = tmp_path / "elsewhere" / name
    kept.mkdir(parents=True)
    os.utime(kept, (0, 0))
    (tmp_path / "warm").symlink_to(tmp_path / "elsewhere")
    warm_socket.sweep(tmp_path)
    assert kept.is_dir()
    (tmp_path / "warm").unlink()
    (tmp_path / "warm").mkdir()
    (tmp_path / "warm" / name).symlink_to(kept)
    warm_socket.sweep(tmp_path)
    assert kept.is_dir()


def test_other_folders_beside_it_stay(tmp_path: Path) -> None:
    kept = tmp_path / "warm" / "documents"
    kept.mkdir(parents=True)
    os.utime(kept, (0, 0))
    warm_socket.sweep(tmp_path)
    assert kept.is_dir()


def test_as_a_user_has_it(tmp_path: Path, clean_environment: dict[str, str], kforge: RunKforge) -> None:
    """`clean_environment` has one that keeps it already."""
    again = kforge("warm", "-p", "null")
    assert again.status == 2
    assert again.stderr.startswith("kforge: `kforge warm` is already running for this environment ")
    assert again.stderr.count("\n") == 1
    nowhere = kforge("warm", "-p", "null", environment={"XDG_CACHE_HOME": "/dev/null/cache"})
    assert (nowhere.status, nowhere.stderr.count("\n")) == (2, 1)
    far = tmp_path / ("deep" * 30)
    too_long = kforge("warm", "-p", "null", environment={"XDG_CACHE_HOME": str(far)})
    assert (too_long.status, too_long.stderr.count("\n")) == (2, 1)
    assert not list(far.glob("kforge/warm/*"))

    own = clean_environment | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "kforge", "warm", "-p", "null", "--json"]
    # who ran us may have told us to ignore Ctrl-C
    restore = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        command, cwd=tmp_path, env=own, stdout=subprocess.PIPE, text=True, preexec_fn=restore
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert json.loads(first + process.stdout.read()) == {"platform": "null", "warm": True}
        assert process.wait(30) == 0
    assert not list(tmp_path.glob("kforge/warm/*")), "it leaves nothing behind"

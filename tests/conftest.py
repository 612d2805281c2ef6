"""What all tests share: the root, hypothesis without clocks, and the command line as a real process."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest
from hypothesis import HealthCheck, settings

from kforge.evaluation.processes.launch import confine

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

# Before torch is imported: OpenMP's threads spin, and those of two test processes on two cores spin for each other.
# Three quarters of the time of the rewriting tests went that way. Processes that tests start know nothing of it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent

# No test asserts a wall time, hypothesis' own included. `make test-all` draws ten times as many examples. The rest is
# its default, or its `ci` profile (the same examples on every run) where the variable CI is set, as .ci/run does.
settings.register_profile(
    "kforge", settings.default, max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("volume", settings.get_profile("kforge"), max_examples=400)
settings.load_profile("kforge")


LONGEST = ("test_resume_after_kill.py",)
"""Files with one test that takes longest: begun last, it would keep one process busy when the others were done."""


SLOW_TESTS = frozenset((Path(__file__).parent / "slow_tests.txt").read_text(encoding="utf-8").splitlines())
"""The tests that took seconds each when they were last measured; `benchmarks/slow_tests.py` writes the file."""


TOGETHER = ("tests/cli/", "tests/evaluation/correctness/", "tests/smith/languages/")
"""Folders whose tests one process runs: they share a forged run, a judge, or a process that interprets kernels, which
each process would have to make for itself."""


ALLOWED_SKIPS = [
    re.compile(line)
    for line in Path(__file__).with_name("allowed_skips.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
NEEDING = pytest.StashKey[int]()
"""How many tests of a file need a device that is not there: one of them stands for all."""


@pytest.hookimpl(optionalhook=True)  # the tests that need a device are run without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Give a process whole files, as xdist does, and the whole of a folder that is listed in `TOGETHER`."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))

    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--volume", action="store_true", help="also run the tests marked volume, as `make test-all` does")
    parser.addoption(
        "--quick", action="store_true", help="leave out the tests that take seconds each, as `make test` does"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Ten times as many random examples with the tests marked volume."""
    if config.getoption("--volume"):
        settings.load_profile("volume")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked volume unless asked for, and slow ones if asked to. Put files that take long first:
    the processes that run tests then end together. Of the tests of a file that need a device, one is left where it is
    missing."""
    for item in items:
        if item.nodeid in SLOW_TESTS:
            item.add_marker("slow")
    wanted = {"volume": config.getoption("--volume"), "slow": not config.getoption("--quick")}
    left_out = [name for name, is_wanted in wanted.items() if not is_wanted]
    kept = [item for item in items if not any(item.get_closest_marker(name) for name in left_out)]
    others = set(all_but_one_a_file([item for item in kept if missing_device(item)]))
    kept = [item for item in kept if item not in others]
    config.hook.pytest_deselected(items=list(set(items) - set(kept)))
    items[:] = kept
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name not in LONGEST, item.path not in slow))


def all_but_one_a_file(items: list[pytest.Item]) -> list[pytest.Item]:
    counts = Counter(item.path for item in items)
    first = {item.path: item for item in reversed(items)}
    for path, item in first.items():
        item.stash[NEEDING] = counts[path]
    return [item for item in items if item is not first[item.path]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """`quiet`: no other process runs a test of this checkout meanwhile, because the test measures a speedup.

    Every test passes the door, so that one which waits for the others to end is not overtaken for ever.
    """
    cache = getattr(item.config, "cache", None)
    if cache is None:  # pytest was started without its cache, and so by itself
        return (yield)
    folder = cache.mkdir("quiet")
    alone = item.get_closest_marker("quiet") is not None
    with (folder / "door").open("a") as door, (folder / "room").open("a") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        if not alone:
            fcntl.flock(door, fcntl.LOCK_UN)
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`device(name)`: skipped, with the reason, where torch has no such accelerator."""
    if name := missing_device(item):
        count = item.stash[NEEDING]
        many = "1 test of this file needs" if count == 1 else f"{count} tests of this file need"
        pytest.skip(f"torch sees no {name} device here, which {many}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On Linux, where CI runs, a skip for a reason that is not in `allowed_skips.txt` is a failure."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and sys.platform == "linux":
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not any(allowed.fullmatch(reason) for allowed in ALLOWED_SKIPS):
            report.outcome = "failed"
            report.longrepr = f"skipped for a reason that tests/allowed_skips.txt does not have: {reason}"
    return report


def missing_device(item: pytest.Item) -> str | None:
    """The accelerator that a test needs and torch does not have."""
    return next((mark.args[0] for mark in item.iter_markers("device") if not has_device(mark.args[0])), None)


@cache
def has_device(name: str) -> bool:
    import torch

    return torch.get_device_module(name).is_available()


class Ran(NamedTuple):
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


class RunKforge(Protocol):
    def __call__(self, *arguments: str | Path, cwd: Path = ..., environment: Mapping[str, str] = ...) -> Ran: ...


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture
def two_threads() -> Iterator[None]:
    """For kernels that share their work among threads, which one alone would not do."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a user who has calibrated this machine: on a busy one it would be done in every process anew."""
    from kforge import platforms
    from kforge.evaluation.referee.measurement_cache import Measurements, peaks_on
    from kforge.records import Peaks

    folder = tmp_path_factory.mktemp("home") / "cache" / "kforge"
    device = platforms.find("null").adapter.describe_device()
    peaks = Peaks(device=device, bytes_per_second=1e11, flops_per_second=1e12)
    for platform in ("null", "cpu"):
        Measurements(folder).put(peaks, *peaks_on(platform, device, version("torch")))
    return folder


@pytest.fixture(scope="session")
def clean_environment(user_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """This process's environment without the user's keys and kforge settings; one cache for the whole session, whose
    user keeps `kforge warm` running: else each of a hundred commands would import torch."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("KFORGE_") and not name.endswith("_API_KEY") and name != "OMP_NUM_THREADS"
    }
    config = tmp_path_factory.mktemp("config")
    own = {"XDG_CACHE_HOME": str(user_cache.parent), "XDG_CONFIG_HOME": str(config)}
    own["XDG_STATE_HOME"] = str(user_cache.parent.parent / "state")
    environment = kept | own | {"KFORGE_TIMING": "0.1", "KFORGE_TIMING_CAP": "0.2"}  # most are not about timing
    with warm_for(environment, config):
        yield environment


@contextmanager
def warm_for(environment: Mapping[str, str], cwd: Path) -> Iterator[int]:
    """While `kforge warm` runs, for commands with this environment; its process."""
    command = [sys.executable, "-m", "kforge", "warm", "-p", "null"]
    with subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        preexec_fn=partial(confine, os.getpid()),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = process.stdout.readline()  # as soon as others can come, or nothing where this cannot be done
        assert said.startswith("commands for null") or sys.platform != "linux"
        yield process.pid
        process.terminate()


@pytest.fixture
def kforge(clean_environment: dict[str, str], tmp_path: Path) -> RunKforge:
    """Runs `kforge` as a user does: another process, in an empty folder unless `cwd` says otherwise."""

    def run(*arguments: str | Path, cwd: Path = tmp_path, environment: Mapping[str, str] | None = None) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "kforge", *map(str, arguments)],
            cwd=cwd,
            env=clean_environment | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def kforge_in_process(
    clean_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> RunKforge:
    """As `kforge`, in this process: referees and workers are as real, but torch is not imported for every command."""
    from kforge.cli import run as carry_out

    def run(*arguments: str | Path, cwd: Path = tmp_path, environment: Mapping[str, str] | None = None) -> Ran:
        variables = clean_environment | dict(environment or {})
        capfd.readouterr()
        with monkeypatch.context() as patch:
            patch.chdir(cwd)
            for name in os.environ.keys() - variables.keys():
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            # without the folder that pytest was started in, as `kforge warm`, which referees are copied from
            patch.setattr(sys, "path", [entry for entry in sys.path if Path(entry) != ROOT])
            status = carry_out([str(argument) for argument in arguments])
        return Ran(status, *capfd.readouterr())

    return run

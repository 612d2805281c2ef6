"""Real workers behind each layer that works on this machine, and a way to run hostile code in them."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from tests.evaluation.kernel_layers import skip_if_missing

from kforge import platforms
from kforge.errors import InputError
from kforge.evaluation.processes import launch
from kforge.evaluation.processes.worker_start import Workers
from kforge.evaluation.sandbox import LADDER
from kforge.evaluation.transport import wire
from kforge.evaluation.worker_client.client import Fault, WorkerClient
from kforge.evaluation.worker_client.output_access import HostAccess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these layers are Linux's")

PRELUDE = """
import ctypes, errno, os, resource, signal, socket, subprocess, sys, tempfile, time
from pathlib import Path

def attempt(action, *arguments):
    try:
        return f"succeeded: {action(*arguments)!r}"
    except OSError as error:
        return f"refused: {errno.errorcode.get(error.errno, error)}"

def say(text):
    raise RuntimeError(f"said <{text}>")
"""


@pytest.fixture(scope="session", params=LADDER)
def workers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """A nursery whose workers live behind this very layer."""
    with fork_server(tmp_path_factory.mktemp(request.param), (request.param,)) as workers:
        try:
            assert workers.sandbox.startswith(request.param)
        except InputError:
            skip_if_missing(request.param)
            raise
        yield workers


@contextlib.contextmanager
def fork_server(folder: Path, ladder: tuple[str, ...], private: tuple[Path, ...] = ()) -> Iterator[Workers]:
    workers = Workers(
        work=folder,
        environment=launch.common_environment(tool_path=os.environ["PATH"], threads=2, extra={}),
        platform=platforms.find("null").folder,
        device_nodes=(),
        ladder=ladder,
        private=private,
    )
    try:
        yield workers
    finally:
        workers.close()


class Inside(Protocol):
    def __call__(self, code: str, *, builds: Path = ...) -> str: ...


def opened(workers: Workers, builds: Path) -> WorkerClient:
    """A fresh worker."""
    return WorkerClient(
        workers.take(builds),
        wire.Begin(str(platforms.find("null").folder), str(builds), "strict"),
        output_bytes=0,
        call_deadline=30.0,
        access=HostAccess(platforms.find("null").adapter),
    )


def said_by(worker: WorkerClient, code: str) -> str:
    """What code says in a worker, or how it failed otherwise. The worker is closed."""
    try:
        worker.load(PRELUDE + code, "candidate.py", "say")
    except Fault as fault:
        reason = fault.verdict.reason
        said = reason.partition("said <")[2].removesuffix(">")
        return said or f"{reason}\n{getattr(fault.verdict, 'log', '')}"
    finally:
        worker.close()
    return "said nothing"


@pytest.fixture
def client(workers: Workers, tmp_path: Path) -> Iterator[Callable[[Path | None], WorkerClient]]:
    """Fresh workers; they are closed when the test is done."""
    taken = []

    def take(builds: Path | None = None) -> WorkerClient:
        taken.append(opened(workers, builds or tmp_path / "builds"))
        return taken[-1]

    yield take
    for each in taken:
        each.close()


@pytest.fixture
def inside(client: Callable[[Path | None], WorkerClient]) -> Inside:
    """Runs code in a fresh worker. What it says, or how it failed otherwise."""
    return lambda code, *, builds=None: said_by(client(builds), code)


@pytest.fixture
def inside_with_private(tmp_path: Path) -> Callable[[str, Path, Path, str], str]:
    """Runs code in a fresh worker of this layer, kept from this private folder, with these builds."""

    def run(layer: str, private: Path, builds: Path, code: str) -> str:
        with fork_server(tmp_path / "work", (layer,), (private,)) as workers:
            try:
                assert workers.sandbox.startswith(layer)
            except InputError:
                skip_if_missing(layer)
                raise
            return said_by(opened(workers, builds), code)

    return run


@pytest.fixture
def running() -> Callable[[str], int]:
    """How many processes of this machine have this word on their command line."""

    def count(mark: str) -> int:
        found = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found += mark.encode() in path.read_bytes()
        return found

    return count

"""A dashboard in a thread of the tests, on a free port, with one tiny problem and an empty folder of runs."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.service.conftest import PROBLEM

from kforge import settings
from kforge.records import EvaluationPolicy
from kforge.service.evaluations import EvaluationService, ServiceOptions
from kforge.web import server
from kforge.web.access import Access
from kforge.web.application import application
from kforge.web.control import Dashboard
from kforge.web.live import Changes
from kforge.web.run_processes import RunProcesses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class Answer(NamedTuple):
    """What the server says to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


class Served(NamedTuple):
    """A dashboard that runs."""

    dashboard: Dashboard
    access: Access

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.access.port}"

    def ask(
        self, path: str, document: object = None, *, body: bytes | None = None, method: str = "", **headers: str
    ) -> Answer:
        """Send a request: GET, or POST where there is a document or body. Names of headers have _ for -."""
        sent: Mapping[str, str] = {name.replace("_", "-"): value for name, value in headers.items()}
        content = json.dumps(document).encode() if document is not None else body
        if document is not None:
            sent = {"Content-Type": "application/json", **sent}
        connection = HTTPConnection("127.0.0.1", self.access.port, timeout=120)
        try:
            connection.request(method or ("POST" if content is not None else "GET"), path, content, dict(sent))
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()


@contextmanager
def served(
    root: Path, problems: Path, environment: Mapping[str, str], *, token: str | None = None, model: str = "builtin"
) -> Iterator[Served]:
    """Run a dashboard over a folder of runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    access = Access.of("127.0.0.1", port, token)
    policy = EvaluationPolicy(compile_baseline=False)
    options = ServiceOptions(problems=(str(problems),), platform="null", policy=policy, waiting=1)
    with EvaluationService(options, settings.load(environment), private=[root]) as service:
        dashboard = Dashboard(service, root, RunProcesses(service, root, [model], environment), Changes())
        running = server.prepared(application(dashboard, access), dashboard.changes.end)
        listener = server.listening(access)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(dashboard, access)
        finally:
            running.should_exit = True
            thread.join()
            listener.close()


@pytest.fixture(scope="session")
def problem_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the problem `tiny`."""
    folder = tmp_path_factory.mktemp("problems")
    (folder / "tiny.py").write_text(PROBLEM)
    return folder


@pytest.fixture(scope="module")
def open_server(
    problem_folder: Path, clean_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A dashboard on this machine, which needs no token."""
    with served(tmp_path_factory.mktemp("runs"), problem_folder, clean_environment) as running:
        yield running


@pytest.fixture(scope="module")
def locked_server(
    problem_folder: Path, clean_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A dashboard that needs a token."""
    root = tmp_path_factory.mktemp("runs")
    with served(root, problem_folder, clean_environment, token="correct-horse-battery") as running:
        yield running

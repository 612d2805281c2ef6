"""Lists runs and suites, and starts, stops and resumes runs, for programs and for the forms of the pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations at run time
from starlette.responses import JSONResponse, RedirectResponse, Response

from kforge import documents
from kforge.web import folders
from kforge.web.folders import NoSuchFolder
from kforge.web.forms import FORM, fields_of
from kforge.web.run_processes import Job, NewRun, RunProcesses

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.service.evaluations import EvaluationService
    from kforge.store import RunFolder
    from kforge.web.live import Changes


@dataclass(frozen=True)
class Dashboard:
    """The objects and folders that all routes share."""

    service: EvaluationService
    root: Path
    """The folder of runs."""
    processes: RunProcesses
    changes: Changes


class NewRunRequest(BaseModel):
    """A run to start. Forms send numbers as text."""

    model_config = ConfigDict(extra="forbid")

    problem: Annotated[str, Field(min_length=1, max_length=400)]
    model: Annotated[str, Field(max_length=200)] = ""
    iterations: int = 5
    search: Annotated[str, Field(max_length=40)] = "linear"
    minutes: float = 0.0


class Control:
    """The routes by which runs are listed and controlled."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.root = dashboard.root
        self.processes = dashboard.processes

    def router(self) -> APIRouter:
        made = APIRouter()
        for path, answer in {
            "/api/runs": self.list_runs, "/api/runs/{name}": self.show_run, "/api/problems": self.list_problems,
            "/api/jobs": self.list_jobs,
        }.items():  # fmt: skip
            made.add_api_route(path, answer, response_model=None)
        made.add_api_route("/runs", self.start, methods=["POST"], response_model=None)
        made.add_api_route("/{kind}/{name}/{action}", self.act, methods=["POST"], response_model=None)
        made.add_api_route("/runs/{name}/kernel.py", self.kernel, response_model=None)
        made.add_api_route("/suites/{name}/kernel/{problem:path}", self.kernel_of_suite, response_model=None)
        for path, stream in {
            "/events": self.watch_all, "/events/runs/{name}": self.watch_run, "/events/suites/{name}": self.watch_suite,
        }.items():  # fmt: skip
            made.add_api_route(path, stream, response_model=None)
        return made

    def list_runs(self) -> dict[str, Any]:
        found = {"runs": folders.runs(self.root), "suites": folders.suites(self.root)}
        return {kind: [path.name for path in paths] for kind, paths in found.items()}

    def show_run(self, name: str) -> dict[str, Any]:
        run = folders.run_of(self.root, name)
        return documents.run(run, run.outcome())

    def list_problems(self) -> dict[str, Any]:
        return {"problems": list(self.dashboard.service.problems), "models": list(self.processes.models)}

    def list_jobs(self) -> dict[str, Any]:
        return {"jobs": [_job(job) for job in self.processes.jobs()]}

    async def start(self, request: Request) -> Response:
        wanted = _checked(await fields_of(request))
        job = await run_in_threadpool(self.processes.start, NewRun(**wanted.model_dump()))
        return _done(request, job, "/")

    async def act(self, request: Request, kind: str, name: str, action: str) -> Response:
        finders = {"runs": folders.run_of, "suites": folders.suite_of}
        if kind not in finders or action not in ("stop", "resume"):
            raise NoSuchFolder("there is no such page")
        folder = (await run_in_threadpool(finders[kind], self.root, name)).path
        job = await run_in_threadpool(self.processes.stop if action == "stop" else self.processes.resume, folder)
        return _done(request, job, f"/{kind}/{quote(name)}")

    def kernel(self, name: str) -> Response:
        return download(folders.run_of(self.root, name))

    def kernel_of_suite(self, name: str, problem: str) -> Response:
        return download(folders.task_of(folders.suite_of(self.root, name), problem)[1])

    async def watch_all(self) -> Response:
        return self.dashboard.changes.of("", partial(_all_marks, self.dashboard))

    async def watch_run(self, name: str) -> Response:
        path = (await run_in_threadpool(folders.run_of, self.root, name)).path
        return self.dashboard.changes.of(f"runs/{name}", partial(folders.mark, path))

    async def watch_suite(self, name: str) -> Response:
        path = (await run_in_threadpool(folders.suite_of, self.root, name)).path
        return self.dashboard.changes.of(f"suites/{name}", partial(folders.suite_mark, path))


def download(run: RunFolder) -> Response:
    """Return the best program of a run as a file to keep. Raises NoSuchFolder if the run has no correct program."""
    best = run.best()
    if best is None or best.candidate is None:
        raise NoSuchFolder(f"run {run.id} has no correct program yet")
    headers = {"Content-Disposition": 'attachment; filename="kernel.py"'}
    return Response(best.candidate.source.encode("utf-8", "surrogatepass"), 200, headers, "text/plain; charset=utf-8")


def _all_marks(dashboard: Dashboard) -> str:
    jobs = [(job.about, job.status, str(job.folder)) for job in dashboard.processes.jobs()]
    return f"{folders.root_mark(dashboard.root)}{jobs}"


def _checked(fields: dict[str, Any]) -> NewRunRequest:
    try:
        return NewRunRequest.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _done(request: Request, job: Job | None, page: str) -> Response:
    """Return a redirect to the page if a form was sent, otherwise a document with the job that was begun."""
    if request.headers.get("content-type", "").startswith(FORM):
        return RedirectResponse(page, 303)
    return JSONResponse({"job": _job(job)} if job is not None else {"stopping": True}, 202)


def _job(job: Job) -> dict[str, Any]:
    document: dict[str, Any] = {"about": job.about, "pid": job.process.pid, "running": job.is_running}
    if job.folder is not None:
        document["run"] = job.folder.name
    if job.status is not None:
        document |= {"status": job.status, "said": job.last_line()}
    return document

"""The pages: the report's views and templates, with controls and live updates around them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from kforge import __version__, phrases
from kforge.report import page as report
from kforge.report.figures import figures_of
from kforge.report.rows import read_report, run_row
from kforge.report.stories import read_story
from kforge.report.summary import families, tiles
from kforge.web import folders
from kforge.web.folders import NoSuchFolder
from kforge.web.listing import MOST_LISTED, RunList

if TYPE_CHECKING:
    from jinja2 import Environment

    from kforge.report.views import Story
    from kforge.store import RunFolder, SuiteFolder
    from kforge.web.control import Dashboard

HERE = Path(__file__).parent
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
"""Content types of static files, by the ends of their names."""
OWN_FILES = ("dashboard.css", "dashboard.js", "login.js")
STRATEGIES = ("linear", "best-of:3", "beam:2", "tree")
"""Search strategies that the form offers; a program may send others."""


@functools.cache
def environment() -> Environment:
    """Return the report's templates and ours. What they print is escaped."""
    from jinja2 import ChoiceLoader, FileSystemLoader

    made = report.environment().overlay(
        loader=ChoiceLoader([FileSystemLoader(HERE / "templates"), FileSystemLoader(report.TEMPLATES)])
    )
    made.filters["moment"] = lambda created: _moment(created) if created else ""
    made.filters["part"] = lambda name: quote(str(name), safe="")
    return made


@functools.cache
def static_files() -> dict[str, str]:
    """Return every static file by name."""
    own = {name: (HERE / "static" / name).read_text(encoding="utf-8") for name in OWN_FILES}
    return {"style.css": report.style_sheet(), "page.js": report.script(), **own}


@dataclass(frozen=True)
class ComparedFact:
    """One line of a comparison: a fact of both runs."""

    name: str
    left: str
    right: str


class Pages:
    """The routes of the pages."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.root = dashboard.root
        self.key = dashboard.service.settings.signing_key
        self.list = RunList(dashboard.root, self.key)

    def router(self) -> APIRouter:
        made = APIRouter()
        for path, answer in {
            "/": self.first, "/runs/{name}": self.run, "/suites/{name}": self.suite, "/compare": self.compare,
            "/suites/{name}/problems/{problem:path}": self.problem, "/static/{name}": self.static, "/login": self.login,
        }.items():  # fmt: skip
            made.add_api_route(path, answer, response_model=None)
        return made

    def first(self, every: str = "") -> Response:
        listed, count = self.list.newest(None if every else MOST_LISTED)
        processes = self.dashboard.processes
        return self._page(
            "first.html.j2", "Runs", "/events", listed=listed, count=count, jobs=processes.jobs(),
            models=processes.models, problems=list(self.dashboard.service.problems), strategies=STRATEGIES,
        )  # fmt: skip

    def run(self, name: str) -> Response:
        run = folders.run_of(self.root, name)
        return self._story(run, f"/runs/{quote(name)}", f"/events/runs/{quote(name)}")

    def problem(self, name: str, problem: str) -> Response:
        suite = folders.suite_of(self.root, name)
        suite.hold_to(self.key)
        task, run = folders.task_of(suite, problem)
        kernel = f"/suites/{quote(name)}/kernel/{quote(task.name)}"
        return self._story(run, "", f"/events/suites/{quote(name)}", suite=suite, kernel=kernel)

    def suite(self, name: str) -> Response:
        suite = folders.suite_of(self.root, name)
        view = read_report([suite], self.key)
        rows = []
        for row in view.problems:
            has_story = bool(row.result.attempts)
            address = f"/suites/{quote(name)}/problems/{quote(row.name)}"
            document = report.row_document(row, view, has_story=False)
            rows.append({**document, "href": address} if has_story else document)
        return self._page(
            "suite.html.j2", view.title, f"/events/suites/{quote(name)}", view=view, notes=(), tiles=list(tiles(view)),
            families=families(view), figures=figures_of(view), rows=rows,
            address=f"/suites/{quote(name)}", status=suite.status(), name=name, is_signed=view.sources[0].is_signed,
        )  # fmt: skip

    def compare(self, left: str = "", right: str = "") -> Response:
        if not left or not right:
            listed = [each for each in self.list.newest(None)[0] if each.kind == "runs" and each.status != "damaged"]
            return self._page("choose.html.j2", "Compare two runs", "", listed=listed, left=left)
        runs = [folders.run_of(self.root, name) for name in (left, right)]
        stories = [self._read(run, f"p{place}") for place, run in enumerate(runs)]
        same = runs[0].header.problem.digest == runs[1].header.problem.digest
        return self._page(
            "compare.html.j2", "Compare two runs", "", stories=stories, names=(left, right), same_problem=same,
            facts=_facts(runs, stories), programs=[_best_program(story) for story in stories],
        )  # fmt: skip

    def login(self) -> Response:
        return self._page("login.html.j2", "Log in", "")

    def static(self, name: str) -> Response:
        if name not in static_files():
            raise NoSuchFolder("there is no such file")
        return Response(static_files()[name], 200, None, KINDS[name.rpartition(".")[2]])

    def _story(
        self, run: RunFolder, address: str, events: str, *, suite: SuiteFolder | None = None, kernel: str = ""
    ) -> Response:
        is_signed = run.hold_to(self.key) and run.is_all_signed(self.key)
        story = self._read(run, "p0")
        return self._page(
            "run.html.j2", run.header.problem.name, events, story=story, address=address, status=run.status(),
            name=run.path.name, suite=suite, kernel=kernel or f"{address}/kernel.py", is_signed=is_signed,
        )  # fmt: skip

    def _read(self, run: RunFolder, key: str) -> Story:
        return read_story(run, run_row(run, key=key))

    def _page(self, template: str, title: str, events: str, **values: Any) -> Response:
        """Return a page. `events`: the stream that says when it has changed; empty where it does not."""
        shared = {"title": title, "events": events, "version": __version__, "place": str(self.root)}
        shared["platform"] = self.dashboard.service.platform.name
        return HTMLResponse(environment().get_template(template).render(**shared, **values))


def error_page(reason: str, status: int, fields: dict[str, str] | None = None) -> Response:
    """Return a page that says what is wrong with a request."""
    text = environment().get_template("error.html.j2").render(
        title="That did not work", events="", version=__version__, place="", platform="", reason=reason,
        fields=fields or {},
    )  # fmt: skip
    return HTMLResponse(text, status)


def _facts(runs: list[RunFolder], stories: list[Story]) -> list[ComparedFact]:
    """Return the facts that a comparison of two runs shows, line by line."""

    def of(run: RunFolder, story: Story) -> dict[str, str]:
        result = story.row.result
        tokens = result.usage.input_tokens + result.usage.output_tokens
        return {
            "problem": run.header.problem.name,
            "platform": run.header.platform,
            "model": run.header.model,
            "began": _moment(run.header.created),
            "status": run.status(),
            **{f"speed against {phrases.BASELINES[each.baseline]}": phrases.brief(each) for each in result.comparisons},
            "attempts": str(result.attempts),
            "time": phrases.clock(result.seconds),
            "tokens": f"{tokens:,}" if tokens else "none",
            "cost": phrases.price(result.usage) if tokens else "none",
            "search": str(run.header.options.get("search", "")),
            "precision": str(run.header.options.get("precision", "")),
        }

    left, right = (of(run, story) for run, story in zip(runs, stories, strict=True))
    return [ComparedFact(name, left.get(name, "none"), right.get(name, "none")) for name in {**left, **right}]


def _moment(created: str) -> str:
    """Return a time in this machine's time zone, to the minute."""
    return f"{datetime.fromisoformat(created).astimezone():%Y-%m-%d %H:%M}"


def _best_program(story: Story) -> str | None:
    """Return the source of a run's best program; None if no attempt is correct."""
    return next((each.program for each in story.attempts if each.row.index == story.best), None)

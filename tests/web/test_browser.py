"""The dashboard in a real browser: live pages, starting, stopping and resuming a run, comparing, hostile names."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright
from tests.report.conftest import HOSTILE, fill, make_suite
from tests.service.conftest import PROBLEM, RIGHT, WRONG
from tests.web.conftest import served

from kforge import settings
from kforge.records import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

NAME = "tiny <img src=x onerror=document.title='owned'> & 'so'"
"""A problem's name that would be code in a page that does not escape it."""
SECONDS = 40
"""Seconds that a page may take to show something: a run's processes start on a busy machine."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def page_of(browser: Browser, **options: object) -> Iterator[Page]:
    """A page that must say nothing on its console, and ask no other server for anything."""
    context = browser.new_context(**options)  # type: ignore[arg-type]
    said, asked = [], []
    page = context.new_page()
    page.set_default_timeout(SECONDS * 1e3)
    page.on("console", lambda message: said.append(message.text) if message.type != "verbose" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: asked.append(request.url))
    yield page
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:"))] == []


@pytest.mark.slow
def test_a_run_from_its_start_to_its_kernel(
    browser: Browser, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    problems, root, script = tmp_path / "problems", tmp_path / "runs", tmp_path / "script.json"
    problems.mkdir()
    root.mkdir()
    (problems / f"{NAME}.py").write_text(PROBLEM)
    hostile = f"{HOSTILE}\n```python\n{{}}\n# {HOSTILE}\n```\n"
    script.write_text(json.dumps([hostile.format(WRONG), hostile.format(RIGHT)]))
    with (
        served(root, problems, clean_environment, model=f"scripted:{script}") as running,
        page_of(browser) as page,
    ):
        page.goto(running.url)
        expect(page.get_by_text("There are no runs in this folder yet")).to_be_visible()
        page.evaluate("window.notReloaded = true")
        page.get_by_text("New run").click()
        page.get_by_label("Problem").fill(NAME)
        page.get_by_label("Attempts").fill("2")
        page.get_by_role("button", name="Start").click()

        page.evaluate("window.notReloaded = true")
        link = page.locator("table.runs a")
        expect(link).to_have_text(NAME, timeout=SECONDS * 1e3)
        assert page.evaluate("window.notReloaded")
        link.click()
        page.evaluate("window.notReloaded = true")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".status")).to_have_text("interrupted", timeout=SECONDS * 1e3)
        page.get_by_role("button", name="Resume").click()

        page.evaluate("window.notReloaded = true")
        expect(page.locator("#p0-attempt-0 > summary")).to_contain_text("mismatch", timeout=SECONDS * 1e3)
        expect(page.locator(".status")).to_have_text("finished", timeout=SECONDS * 1e3)
        expect(page.locator("#p0-attempt-1 .best")).to_have_text("best")
        # it was open when it was the only one, and stays so whatever else changes
        assert page.locator("#p0-attempt-0").get_attribute("open") is not None
        assert page.evaluate("window.notReloaded")
        assert page.locator("img, main script").count() == 0
        assert HOSTILE[:30] in page.content().replace("&lt;", "<").replace("&gt;", ">")
        assert "owned" not in page.title().split("<")[0]

        with page.expect_download() as downloading:
            page.get_by_text("Download the kernel").click()
        assert downloading.value.path().read_text() == next(root.glob("2*/best.py")).read_text()
        refused = page.request.post(f"{running.url}/runs", data={"problem": "../../etc/passwd"})
        assert (refused.status, "there is no problem" in refused.json()["error"]) == (422, True)


def test_pages_of_hostile_runs_and_suites(
    browser: Browser, problem_folder: Path, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    key = settings.load(clean_environment).signing_key
    runs = [
        fill(tmp_path, Problem(name=HOSTILE, source="class Model:\n    pass\n"), number, key, HOSTILE).path.name
        for number in (1, 2)
    ]
    foreign = fill(tmp_path, Problem(name="theirs", source="class Model: pass\n"), 2, None, finish=False).path.name
    suite = make_suite(tmp_path, [f"odd/{HOSTILE}", "plain/two", "plain/three", "plain/four"], key, HOSTILE)
    token = "correct-horse-battery"
    with (
        served(tmp_path, problem_folder, clean_environment, token=token) as running,
        page_of(browser, viewport={"width": 390, "height": 800}) as page,
    ):
        page.goto(running.url)
        expect(page).to_have_url(f"{running.url}/login")
        page.goto(f"{running.url}/login#{token}")
        page.wait_for_url(f"{running.url}/")
        assert page.locator("table.runs tbody tr").count() == 4
        expect(page.locator(f"#row-{foreign}")).to_contain_text("not signed by you")

        compare = page.get_by_role("button", name="Compare the two chosen")
        expect(compare).to_be_disabled()
        for name in runs:
            page.get_by_label(f"compare {name}").check()
        compare.click()
        expect(page.get_by_role("heading", name="Compare two runs")).to_be_visible()
        expect(page.locator(".sides section")).to_have_count(2)
        expect(page.locator(".facts-table")).to_contain_text("speed against torch.compile")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

        page.goto(f"{running.url}/runs/{foreign}")
        expect(page.get_by_text("asks for permission")).to_be_visible()
        expect(page.get_by_role("button", name="Resume")).to_have_count(0)

        page.goto(f"{running.url}/suites/{suite.path.name}")
        rows = page.locator("#table tbody tr")
        assert rows.count() == len(suite.header.tasks)
        page.locator("#table a").first.click()
        expect(page.get_by_text("← suite")).to_be_visible()
        assert page.locator("img, main script:not([type='application/json'])").count() == 0

        for path in (f"/runs/{runs[0]}", "/", "/compare", f"/suites/{suite.path.name}"):
            page.goto(running.url + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert page.locator("img").count() == 0

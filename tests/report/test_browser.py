"""The page in a real browser: offline, by mouse and by keyboard, with hostile names."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

from kforge.report.rows import read_report
from kforge.report.writing import write_report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from kforge.store import Key, SuiteFolder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium is not None, "the tests need Debian's chromium; .ci/run installs it"
    with sync_playwright() as playwright:
        # the superuser of a container has no sandbox to give to a browser
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(made: SuiteFolder, signing_key: Key, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(read_report([made], signing_key), path, "all", signing_key)
    return path


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The report, opened without a network. Errors, messages of the console and requests fail the test."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    trouble: list[str] = []
    opened.on("console", lambda message: trouble.append(message.text))
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("dialog", lambda dialog: trouble.append(f"a dialog: {dialog.message}"))
    opened.on("request", lambda request: trouble.append(request.url) if request.url != file.as_uri() else None)
    opened.goto(file.as_uri())
    yield opened
    assert trouble == []
    context.close()


def names(page: Page) -> list[str]:
    return page.locator("#table tbody tr td:first-child").all_inner_texts()


def test_the_table_sorts_and_filters(page: Page) -> None:
    assert len(names(page)) == 9
    assert names(page)[0].startswith("odd/</script><img src=x onerror=alert(1)> \\u202e")
    assert page.locator("img").count() == 0
    page.get_by_role("button", name="over eager").click()
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("over eager")
    assert names(page)[:2] == ["family_1/problem_3", "family_1/problem_1"]
    page.get_by_role("button", name="over eager").click()
    assert names(page)[0] == "family_0/problem_2"
    assert "cannot tell" not in names(page)[0]
    page.get_by_role("button", name="problem", exact=True).click()
    assert names(page)[0] == "family_0/problem_0"
    page.get_by_role("button", name="faster 3").click()
    assert page.locator("#count").inner_text() == "3 of 9 problems"
    assert {text.splitlines()[0] for text in page.locator("#table td:nth-child(2)").all_inner_texts()} == {"faster"}
    page.get_by_role("button", name="faster 3").click()
    page.locator("#filter").fill("family_1 referee")
    assert len(names(page)) == 0
    page.locator("#filter").fill("referee DIED")
    assert names(page) == ["family_0/problem_6"]


def test_a_story_opens_and_closes_by_keyboard_alone(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("problem_1")
    assert names(page) == ["family_1/problem_1"]
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName === 'A' && document.activeElement.closest('tbody') !== null"):
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is visible"
    page.keyboard.press("Enter")
    page.wait_for_selector("#story:not([hidden]) h1")
    assert page.evaluate("document.activeElement.textContent") == "family_1/problem_1"
    assert page.locator("#overview").is_hidden()
    assert page.locator("details.attempt[open]").count() == 1
    page.keyboard.press("Tab")
    summary = page.locator("details.attempt summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.attempt[open]").count() == 2
    page.keyboard.press("Escape")
    page.wait_for_selector("#overview:not([hidden])")
    assert page.evaluate("document.activeElement.textContent") == "family_1/problem_1"
    page.locator("#filter").focus()
    page.keyboard.press("Escape")
    assert len(names(page)) == 9


def test_a_hostile_story_is_only_text(page: Page) -> None:
    page.get_by_role("link", name="odd/").click()
    page.wait_for_selector("#story:not([hidden]) h1")
    page.evaluate("document.querySelectorAll('#story details').forEach((each) => { each.open = true; })")
    assert page.locator("#story img, #story script").count() == 0
    assert page.locator("#story .diff .added").count() > 0
    assert page.locator("#story svg").count() >= 2
    text = page.locator("#story").inner_text()
    assert "\u202e" not in text
    assert text.count("onerror=alert(1)>") > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(browser: Browser, file: Path, scheme: str) -> None:
    context = browser.new_context(
        offline=True,
        viewport={"width": 390, "height": 844},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    for place in ("", "#p2"):
        page.goto(f"{file.as_uri()}{place}")
        page.wait_for_selector("#story:not([hidden]) h1" if place else "#table tbody tr")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 23, 26)" if scheme == "dark" else "rgb(251, 251, 249)")
    context.close()


def test_the_page_stays_quick_with_a_thousand_problems(page: Page) -> None:
    """Only some rows are drawn at first, and all of them are searched."""
    page.evaluate(
        """() => {
            const row = JSON.parse(document.getElementById("rows").textContent)[1];
            window.kforge.update(Array.from({length: 1000}, (_, n) => ({...row, key: `x${n}`, name: `made_${n}`})));
        }"""
    )
    assert page.locator("#count").inner_text() == "1009 problems"
    assert len(names(page)) == 200
    page.get_by_role("button", name="Show 200 more of 809").click()
    assert len(names(page)) == 400
    page.locator("#filter").fill("made_987")
    assert names(page) == ["made_987"]

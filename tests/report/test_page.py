"""The offline page: whole, without anything from elsewhere, and with every foreign text as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.report.conftest import HOSTILE

from kforge.report.page import render_page, render_story
from kforge.report.rows import read_report
from kforge.report.source_text import changed, highlighted
from kforge.report.stories import read_story
from kforge.store import RunFolder

if TYPE_CHECKING:
    from kforge.report.views import ReportView, Story
    from kforge.store import Key, SuiteFolder


class Elements(HTMLParser):
    """Names and attributes of all elements, and the text of each script and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.held: list[tuple[dict[str, str | None], str]] = []
        self._open: dict[str, str | None] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        self._open = dict(attrs) if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.held.append((self._open, data))
            self._open = None


@pytest.fixture(scope="module")
def view(made: SuiteFolder, signing_key: Key) -> ReportView:
    return read_report([made], signing_key)


@pytest.fixture(scope="module")
def stories(view: ReportView) -> dict[str, Story]:
    runs = ((row, row.result.run) for row in view.problems)
    return {row.key: read_story(RunFolder.open(Path(run)), row) for row, run in runs if run}


@pytest.fixture(scope="module")
def page(view: ReportView, stories: dict[str, Story]) -> Elements:
    return Elements(render_page(view, stories, (f"A note {HOSTILE}",)))


def test_nothing_is_loaded_from_elsewhere(page: Elements) -> None:
    loading = {"src", "srcset", "action", "data", "poster", "background", "style"}
    assert [(name, value) for name, value in page.attributes if name in loading or name.startswith("on")] == []
    links = {value for name, value in page.attributes if name == "href"}
    assert all(link is not None and link.startswith("#") for link in links)
    assert not {"link", "iframe", "object", "embed", "base", "img"} & set(page.names)


def test_the_policy_allows_only_the_script_and_style_of_the_page(page: Elements) -> None:
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in (value or ""))
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    own = [text for about, text in page.held if about.get("type") != "application/json"]
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in own}
    assert len(own) == 2
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes


def test_hostile_text_is_never_markup(page: Elements, stories: dict[str, Story]) -> None:
    assert page.names.count("script") == 3
    for story in stories.values():
        found = Elements(render_story(story))
        assert not {"script", "img"} & set(found.names)
        assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]


def test_hidden_characters_are_spelled_out(view: ReportView, stories: dict[str, Story]) -> None:
    for text in (render_page(view, stories), *map(render_story, stories.values())):
        assert "\u202e" not in text
    assert "\\u202egnp.exe" in render_story(stories["p0"])
    assert "{{ 7*7 }}" in render_story(stories["p0"])


def test_rows_and_stories_are_read_back_from_the_page(page: Elements, stories: dict[str, Story]) -> None:
    data = {about["id"]: json.loads(text) for about, text in page.held if about.get("type") == "application/json"}
    assert len(data["rows"]) == 9
    assert data["rows"][0]["name"].startswith("odd/</script><img src=x onerror=alert(1)> \\u202e")
    assert data["rows"][2]["speedups"]["eager"]["median"] == pytest.approx(2.53)
    assert {row["key"] for row in data["rows"] if row["story"]} == set(stories) == set(data["stories"])
    story = zlib.decompress(base64.b64decode(data["stories"]["p2"])).decode()
    assert story == render_story(stories["p2"])


def test_a_story_shows_everything_about_its_attempts(stories: dict[str, Story]) -> None:
    text = render_story(stories["p2"])
    for part in (
        "Write a program.", "Here it is.", "kernel.cpp:3:9: error:", "Time a call  1 ms", "bottleneck",
        "Timing samples",
        "5ec2e7", "Changes since attempt 4", "Repetitions of the best program", "against attempt 4: faster",
    ):  # fmt: skip
        assert part in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert all(name.startswith("p2-") for name in ids)


def test_a_kernel_inside_a_program_is_coloured_as_such() -> None:
    text = highlighted('SOURCE = r"""\n// <adds>\nint f() {\n  return 1;\n}\n"""\ndef g():\n    """A docstring."""\n')
    assert '<span class="t-comment">// &lt;adds&gt;\n</span>' in text
    assert '<span class="t-word">return</span>' in text
    assert re.sub(r"<[^>]+>", "", text).replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", '"') == (
        'SOURCE = r"""\n// <adds>\nint f() {\n  return 1;\n}\n"""\ndef g():\n    """A docstring."""\n'
    )


def test_a_diff_marks_lines_and_escapes_them() -> None:
    assert changed("a\n<b>\n", "a\n<i>\n").endswith(
        '<span class="kept"> a</span>\n<span class="removed">-&lt;b&gt;</span>\n<span class="added">+&lt;i&gt;</span>'
    )

"""The documentation names only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.checking import ROOT, broken_snippets, faults

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"],
    key=lambda page: page.as_posix(),
)
SKETCHES = {ROOT / "docs" / "design.md"}
"""Pages whose Python blocks are signatures, not programs."""
OF_RUN_FOLDERS = {"best.py", "candidate.py", "submission.py", "task.py", "utils.py"}
"""Files that kforge writes, or reads in suites of others."""
DECISIONS = ROOT / "docs" / "decisions"

SOUND = """\
# A page

## One thing, twice

See [the guide](docs/guide.md#exit-statuses), [above](#one-thing-twice), [elsewhere](https://example.org/none)
and `docs/decisions/*.md`.

```
kforge eval PROBLEM CANDIDATE -p cpu --receipt R.json && kforge verify R.json    # a comment
KFORGE_TIMING=0.3 kforge suite core -m builtin --ahead 14
make PYTHON=python3.12 demo
```

A sentence may name `kforge eval`, `make test` and `tests/docs/test_docs.py::test_a_page_names_only_what_exists`.

```python
print("a snippet")
```
"""
PLANTED = {
    "a dead link": ("[x](docs/no_such_page.md)", "no such file"),
    "a dead anchor": ("[x](docs/guide.md#no-such-heading)", "no such heading"),
    "a link that leaves the repository": ("[x](../..)", "outside of the repository"),
    "an unknown command": ("```\nkforge frobnicate\n```", "No such command"),
    "an unknown option": ("```\nkforge eval PROBLEM CANDIDATE --no-such-option\n```", "No such option"),
    "a missing argument": ("```\nkforge eval PROBLEM\n```", "Missing"),
    "a value that an option does not take": ("```\nkforge forge PROBLEM --precision none\n```", "none"),
    "a second command of a line": ("```\nkforge runs && kforge frobnicate\n```", "No such command"),
    "a command in a sentence": ("`kforge eval --no-such-option`", "No such option"),
    "an unknown target": ("```\nmake nonsense\n```", "no make target nonsense"),
    "an unknown target in a sentence": ("`make nonsense`", "no make target nonsense"),
    "a dead path": ("`src/kforge/no_such_file.py`", "there is no src/kforge/no_such_file.py"),
    "a dead path in a block": ("```\npython benchmarks/none.py\n```", "there is no benchmarks/none.py"),
    "a test that is not there": ("`tests/docs/test_docs.py::test_nothing`", "has no test_nothing"),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_only_what_exists(page: Path) -> None:
    assert faults(page, page.read_text()) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in SKETCHES and "```python" in page.read_text()])
def test_snippets_of_a_page_are_python(page: Path) -> None:
    assert broken_snippets(page.read_text()) == []
    assert broken_snippets(f"{page.read_text()}\n```python\nif\n```\n")


def test_a_page_on_which_all_is_there_has_no_faults() -> None:
    assert faults(ROOT / "PAGE.md", SOUND) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_not_there_is_found(planted: str) -> None:
    text, expected = PLANTED[planted]
    (found,) = faults(ROOT / "PAGE.md", f"{SOUND}\n{text}\n")
    assert expected in found


def test_every_page_of_docs_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"({page.name})" not in index] == ["README.md"]


def test_every_decision_has_its_headings_and_is_in_the_index() -> None:
    index = (DECISIONS / "README.md").read_text()
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:03d}-" for number in range(1, len(pages) + 1)]
    for page in pages:
        assert f"({page.name})" in index
        headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert headings == ["Problem", "Tried", "Result", "Decision"], page.name


def test_what_is_to_be_changed_is_where_the_page_says() -> None:
    rows = re.findall(
        r"^\| .+ \| `(.+?)` \| (.+) \|$", (ROOT / "docs" / "where-to-change-what.md").read_text(), re.MULTILINE
    )
    assert len(rows) >= 15
    for file, begin in rows:
        text = (ROOT / file).read_text()
        for named in re.findall(r"`([\w.]+)`", begin):
            for name in named.split("."):
                assert re.search(rf"\b(?:def|class) {name}\b|^{name}\b.*=", text, re.MULTILINE), f"{file}: {name}"


def test_modules_are_called_as_they_are_now() -> None:
    """Cause: pages and docstrings went on naming modules that had been renamed."""
    folders = ("src", "tests", "benchmarks", "examples")
    there = [f"/{file.relative_to(ROOT).as_posix()}" for folder in folders for file in (ROOT / folder).rglob("*.*")]
    pages = [page for page in PAGES if DECISIONS not in page.parents and page.name != "CHANGELOG.md"]
    dead = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in (*pages, *(ROOT / "src" / "kforge").rglob("*.py"))
        for name in re.findall(r"`([a-z_/0-9]+\.(?:py|j2|h))`", file.read_text())
        if name not in OF_RUN_FOLDERS and not any(path.endswith(f"/{name}") for path in there)
    ]
    assert dead == []


def test_code_refers_to_pages_that_exist() -> None:
    files = [file for folder in ("src", "tests", "benchmarks", "examples") for file in (ROOT / folder).rglob("*.py")]
    dead = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for name in re.findall(r"\bdocs/[\w./-]*\w", file.read_text())
        if file.parent != Path(__file__).parent and not [*ROOT.glob(name), *ROOT.glob(f"{name}-*.md")]
    ]
    assert dead == []


def test_readme_shows_a_snippet_that_is_tested() -> None:
    """`tests/api/test_real_modules.py` runs the snippets of docs/python-api.md."""
    shown = re.findall(r"^```python\n.*?^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    assert all(snippet in (ROOT / "docs" / "python-api.md").read_text() for snippet in shown)

"""Readers of other packages: found by entry point, without a change in kforge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.problems.readers.conftest import described, tasks_of

from kforge.errors import ProblemError
from kforge.problems import open_suite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OUTSIDE = '''\
"""A reader for `*.shapes`: one shape on each line."""

from kforge.problems.readers import Entry, Variant
from kforge.records import Problem

SOURCE = """\\
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.rand({shape})]
def get_init_inputs():
    return []
"""


class ShapesReader:
    name = "shapes"

    def recognizes(self, folder):
        return any(folder.glob("*.shapes"))

    def read(self, folder):
        for file in sorted(folder.glob("*.shapes")):
            yield Entry(
                name=f"shapes/{file.stem}",
                variants=[
                    Variant(name=line, make=lambda line=line: Problem(name="twice", source=SOURCE.format(shape=line)))
                    for line in file.read_text().splitlines()
                ],
            )
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a package with an entry point for a reader, as pip would."""

    def write(module: str, source: str, *, name: str = "Reader") -> None:
        site = tmp_path / "site"
        about = site / f"{module}-1.0.dist-info"
        about.mkdir(parents=True)
        (site / f"{module}.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[kforge.suites]\n{module} = {module}:{name}\n")
        monkeypatch.syspath_prepend(site)

    return write


def test_a_reader_of_another_package_is_used(install: Callable[..., None], tree: Callable[..., Path]) -> None:
    install("acme_shapes", OUTSIDE, name="ShapesReader")
    tasks = tasks_of(tree({"a.shapes": "2, 3\n4, 5\n", "b.shapes": "7\n"}))
    assert list(tasks) == ["shapes/a/2, 3", "shapes/a/4, 5", "shapes/b"]
    assert described(tasks["shapes/a/4, 5"]).outputs[0].shape == (4, 5)


def test_a_reader_that_does_not_load_stops_no_other_suite(
    install: Callable[..., None], tree: Callable[..., Path]
) -> None:
    install("acme_torn", "raise OSError('no licence')\n")
    suite = open_suite(str(tree({"a.py": "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"})))
    assert suite.remarks == ["the reader acme_torn = acme_torn:Reader is not used: OSError: no licence"]
    assert [task.name for task in suite.tasks()] == ["a"]


def test_remarks_about_readers_are_kept_if_the_format_is_given(
    install: Callable[..., None], tree: Callable[..., Path]
) -> None:
    """Cause: the remarks were dropped, so nothing said why the reader of a package was not among the formats."""
    install("acme_torn", "raise OSError('no licence')\n")
    folder = tree({"a.py": "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"})
    suite = open_suite(str(folder), form="kforge")
    assert suite.remarks == ["the reader acme_torn = acme_torn:Reader is not used: OSError: no licence"]


def test_an_object_without_the_methods_is_no_reader(install: Callable[..., None], tree: Callable[..., Path]) -> None:
    install("acme_empty", "class Reader: name = 'empty'\n")
    suite = open_suite(str(tree({"a.py": "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"})))
    assert "it lacks name, recognizes or read" in suite.remarks[0]


def test_a_format_is_forced_by_its_name(tree: Callable[..., Path]) -> None:
    problem = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"
    folder = tree({"level1/1_a.py": problem, "level1/extra.py": problem})
    assert [task.name for task in open_suite(str(folder)).tasks()] == ["level1/1_a"]
    assert len(open_suite(str(folder), form="kforge").tasks()) == 2
    with pytest.raises(ProblemError, match="no format 'foo'; there are: "):
        open_suite(str(folder), form="foo")

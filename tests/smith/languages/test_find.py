"""Languages are found among our own, in installed packages, and beside a platform outside our tree."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge import platforms
from kforge.errors import PlatformError
from kforge.platforms import load_folder
from kforge.records import Problem
from kforge.smith import writes_for
from kforge.smith.brain import Smith
from kforge.smith.languages import find

MANIFEST = """
name = "abacus"
title = "Abacus"
language = "beads"
fence = ["python"]
device = "cpu"
facts = ["It has beads."]
kernels = "beads"
preference = 5
"""

LANGUAGE = Path(__file__).parent / "foreign" / "language.py"

PROBLEM = Problem(
    name="given",
    source="""
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.sigmoid(x.t() * 2.0 + y).exp()
def get_inputs():
    return [torch.rand(4, 3), torch.rand(3, 1)]
def get_init_inputs():
    return []
""",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A platform outside our tree, without a language yet."""
    folder = tmp_path / "abacus"
    (folder / "example").mkdir(parents=True)
    (folder / "platform.toml").write_text(MANIFEST)
    for name in ("reference.py", "kernel.py"):
        (folder / "example" / name).write_text("")
    return folder


def runs(source: str) -> None:
    """Assert that a program computes what the problem does."""
    program: dict[str, Any] = {}
    exec(source, program)
    x, y = torch.rand(4, 3), torch.rand(3, 1)
    torch.testing.assert_close(program["ModelNew"]()(x, y), torch.sigmoid(x.t() * 2.0 + y).exp())


def test_a_language_beside_its_platform_writes_programs_and_no_file_of_ours_knows_it(folder: Path) -> None:
    shutil.copy(LANGUAGE, folder)
    answer = Smith(load_folder(folder)).write(PROBLEM, None)  # type: ignore[arg-type]
    assert answer.unchanged is None
    assert "def fused_" in answer.candidate.source
    runs(answer.candidate.source)


def test_a_language_of_an_installed_package_is_found_by_its_entry_point(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "beads-1.0.dist-info").mkdir(parents=True)
    (site / "beads-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: beads\nVersion: 1.0\n")
    points = "[kforge.languages]\nbeads = beads_of_wood:Language\ngone = no_such_module:Language\n"
    (site / "beads-1.0.dist-info" / "entry_points.txt").write_text(points)
    shutil.copy(LANGUAGE, site / "beads_of_wood.py")
    monkeypatch.syspath_prepend(str(site))
    runs(Smith(load_folder(folder)).write(PROBLEM, None).candidate.source)  # type: ignore[arg-type]
    (folder / "platform.toml").write_text(MANIFEST.replace('"beads"\npreference', '"gone"\npreference'))
    with pytest.raises(PlatformError, match="no_such_module:Language: cannot be loaded") as refused:
        find(load_folder(folder))
    assert "\n" not in str(refused.value)


def test_an_unknown_language_is_one_line_that_names_the_known_ones(folder: Path) -> None:
    with pytest.raises(
        PlatformError, match=r"abacus: no kernel language named 'beads'; known languages: c\+\+, "
    ) as refused:
        find(load_folder(folder))
    assert "\n" not in str(refused.value)
    assert not writes_for(load_folder(folder))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Language: plan = 1", "lacks: .*region"),
        ("x = 1", "must define a class Language"),
        (
            "class Language:\n    def __init__(self): raise ValueError('no\\nbeads')",
            "cannot be instantiated: ValueError: no beads",
        ),
        ("import", "cannot be loaded: SyntaxError"),
    ],
)
def test_a_broken_language_is_one_line_with_its_file(folder: Path, text: str, said: str) -> None:
    (folder / "language.py").write_text(text)
    with pytest.raises(PlatformError, match=f"language.py: .*{said}") as refused:
        find(load_folder(folder))
    assert "\n" not in str(refused.value)


def test_every_platform_of_ours_names_a_language_that_is_there() -> None:
    for platform in platforms.available():
        assert isinstance(platform, platforms.Platform)
        assert (find(platform) is None) == (platform.manifest.kernels == "")

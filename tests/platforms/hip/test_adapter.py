"""The platform `hip` on a machine without an AMD GPU: its example builds, and what is missing is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kforge import platforms, problems
from kforge.errors import PlatformError
from kforge.inline.hip import checking
from kforge.problems.instance import instantiate
from kforge.smith.brain import Smith

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = platforms.find("hip").folder / "example" / "kernel.py"


@pytest.fixture
def adapter() -> platforms.Adapter:
    return platforms.find("hip").adapter


def test_its_example_builds_for_a_gpu_that_is_not_here(adapter: platforms.Adapter) -> None:
    assert adapter.build_ahead(EXAMPLE) == ("gfx90a",)


def test_a_program_that_does_not_build_is_one_line(adapter: platforms.Adapter, tmp_path: Path) -> None:
    wrong = tmp_path / "kernel.py"
    wrong.write_text(EXAMPLE.read_text().replace("rsqrtf(", "no_such_function("))
    with pytest.raises(PlatformError, match=r"^kernel\.py does not build for gfx90a: .*no_such_function"):
        adapter.build_ahead(wrong)
    wrong.write_text("class ModelNew: ...\n")
    assert adapter.build_ahead(wrong) == ()


def test_what_is_missing_is_said(adapter: platforms.Adapter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if (reason := adapter.probe()) is not None:
        assert reason in (
            "no AMD GPU found (/dev/kfd does not exist)",
            "there is an AMD GPU, but this torch was built without ROCm",
        )
        monkeypatch.setenv("PATH", str(tmp_path))
        checking.find_compiler.cache_clear()
        try:
            with pytest.raises(PlatformError, match=r"no clang found .*; install it: apt-get install clang$"):
                adapter.build_ahead(EXAMPLE)
        finally:
            checking.find_compiler.cache_clear()
    assert "/dev/kfd" in adapter.device_nodes()
    assert adapter.emulated() is None


def test_what_the_built_in_generator_writes_builds(adapter: platforms.Adapter, tmp_path: Path) -> None:
    platform = platforms.find("hip")
    problem = problems.load(EXAMPLE.with_name("reference.py"))
    answer = Smith(platform).write(problem, instantiate(problem).describe())
    assert answer.candidate is not None
    assert "__global__" in answer.candidate.source
    (tmp_path / "kernel.py").write_text(answer.candidate.source)
    assert adapter.build_ahead(tmp_path / "kernel.py") == ("gfx90a",)


def test_it_is_not_taken_where_its_device_is_missing(adapter: platforms.Adapter) -> None:
    assert adapter.probe() is None or platforms.at_hand().name != "hip"

"""Languages are found among our own, in installed packages, and beside a platform outside our tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from kforge import platforms
from kforge.errors import PlatformError
from kforge.platforms import load_folder
from kforge.records import Problem
from kforge.smith import writes_for
from kforge.smith.brain import Smith
from kforge.smith.languages import find

if TYPE_CHECKING:
    from pathlib import Path

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

LANGUAGE = """
from kforge.smith.fusion.loops import nest
from kforge.smith.languages import WrittenKernel
from kforge.smith.plan import Plan

SPELLED = {"add": "{0} + {1}", "mul": "{0} * {1}", "exp": "({0}).exp()", "sigmoid": "({0}).sigmoid()"}


class Language:
    plan, moves, imports, on_host = Plan, (), ("import math",), True
    kinds, most_nodes, rules = ("map",), 100, ()

    def region(self, name, region, context):
        kernel = nest(region, context.graph)
        sizes, given, names = [loop.size for loop in kernel.loops], [], {}
        lines = []
        for memory in kernel.memories:
            given.append(context.memory(memory.base))
        for buffer in kernel.buffers:
            names[buffer.name] = f"beads_{buffer.name}"
            strided = f"as_strided({sizes}, {buffer.steps}, {buffer.offset})"
            lines.append(f"    beads_{buffer.name} = {buffer.base}.{strided}")
        values = {name: names[name] for name in region.inputs()}
        for node in region.nodes:
            operands = [values.get(each, each) for each in node.inputs]
            values[node.name] = f"value_{node.name}"
            lines.append(f"    value_{node.name} = {SPELLED[node.function].format(*operands)}")
        lines += [f"    {names[each]}.copy_({values[each]})" for each in kernel.outputs]
        parameters = ", ".join(memory.base for memory in kernel.memories)
        text = f"def {name}({parameters}):\\n" + "\\n".join(lines)
        return WrittenKernel(name, text, (f"{name}({', '.join(given)})",))

    def call(self, name, node, tail, context):
        return None

    def beside(self, node, tail, context):
        return ()

    def library(self, kernels):
        return "\\n\\n".join(kernel.text for kernel in kernels)
"""

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
    (folder / "language.py").write_text(LANGUAGE)
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
    (site / "beads_of_wood.py").write_text(LANGUAGE)
    monkeypatch.syspath_prepend(str(site))
    runs(Smith(load_folder(folder)).write(PROBLEM, None).candidate.source)  # type: ignore[arg-type]
    (folder / "platform.toml").write_text(MANIFEST.replace('"beads"\npreference', '"gone"\npreference'))
    with pytest.raises(PlatformError, match="no_such_module:Language: does not load") as refused:
        find(load_folder(folder))
    assert "\n" not in str(refused.value)


def test_an_unknown_language_is_one_line_that_names_the_known_ones(folder: Path) -> None:
    with pytest.raises(PlatformError, match=r"abacus: no kernel language named 'beads'; there are: c\+\+, ") as refused:
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
            "cannot be made: ValueError: no beads",
        ),
        ("import", "does not load: SyntaxError"),
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

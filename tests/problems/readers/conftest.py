"""Small suites in the formats of others, written to a temporary folder."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from kforge.problems import open_suite
from kforge.problems.instance import instantiate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kforge.problems import Task
    from kforge.records import Workload


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[Mapping[str, str]], Path]:
    """Write files by their paths below a new folder, and return the folder."""

    def write(files: Mapping[str, str]) -> Path:
        root = tmp_path / "theirs"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return write


def tasks_of(folder: Path, workload: str = "", only: str = "") -> dict[str, Task]:
    return {task.name: task for task in open_suite(str(folder)).tasks(workload, only)}


def described(task: Task) -> Workload:
    """Run the reference of a task, and return its shapes.

    A program is often the problem's own source without its two functions, so the rest must stand by itself.
    """
    assert task.problem is not None, task.failure
    tree = ast.parse(task.problem.source)
    drawing = {"get_inputs", "get_init_inputs"}
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in drawing)]
    exec(compile(tree, "<program>", "exec"), {"__name__": "program"})
    return instantiate(task.problem).describe()

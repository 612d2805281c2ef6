"""Reads tasks of GPU MODE: `task.yml` with test and benchmark cases, and `reference.py` with the reference.

The reference imports from the files beside it; the definitions that it uses are copied into the problem. The task's own
check, `check_implementation`, and its harness are not used. The benchmark cases are timed; the test cases are held out.
"""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING, Any

from kforge.errors import ProblemError
from kforge.problems.discovery import natural
from kforge.problems.readers.files import files_named, inside, yaml_file
from kforge.problems.readers.inlining import inlined, reachable
from kforge.problems.readers.protocol import HELD_OUT, TIMED, Entry, Variant
from kforge.problems.readers.writing import entry_or_failure, literal, problem, workload_name
from kforge.problems.source import parse, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kforge.records import Problem

TASK, REFERENCE, CHECK = "task.yml", "reference.py", "check_implementation"
DEPTH = 3
"""How deep the folders of tasks may lie: a checkout has `problems/<set>/<task>`."""
OTHER_CHECK = (
    "the task's own check is not a plain comparison with its reference; kforge compares with the reference, which may "
    "refuse programs that the task accepts"
)
SEVERAL_DEVICES = "tasks for several devices at once are not read"
MODULE = """
import random as _random

import torch


class Model(torch.nn.Module):
    def forward(self, {parameters}):
        return ref_kernel({data})


def get_inputs():
    return {inputs}


def get_init_inputs():
    return []
"""
DRAWN_SEED = "_random.randrange(2**31)"
"""An expression that draws the seed of a case. It replaces the seed in `task.yml`, so that a program cannot know its
inputs."""


class GpuModeReader:
    """Reads a folder with tasks of GPU MODE."""

    name = "gpu-mode"

    def recognizes(self, folder: Path) -> bool:
        return bool(_tasks(folder))

    def read(self, folder: Path) -> Iterator[Entry]:
        for place in _tasks(folder):
            name = place.relative_to(folder).as_posix().removeprefix("problems/") if place != folder else place.name
            yield entry_or_failure(name, partial(_entry, name, place, folder))


def _tasks(folder: Path) -> list[Path]:
    found = (file.parent for file in files_named(folder, (TASK,), DEPTH))
    return sorted((place for place in found if (place / REFERENCE).is_file()), key=natural)


def _entry(name: str, place: Path, root: Path) -> Entry:
    """Return the entry of a task in the suite's folder `root`. Raises ProblemError if its `task.yml` cannot be used."""
    said = yaml_file(place / TASK)
    if said.get("multi_gpu"):
        return Entry(name=name, variants=(), refused=SEVERAL_DEVICES)
    cases = [(TIMED, case) for case in _cases(said, "benchmarks", place)]
    cases += [(HELD_OUT, case) for case in _cases(said, "tests", place)]
    if not cases:
        raise ProblemError(f"{place / TASK}: has no benchmarks and no tests")
    listed = said.get("files") or []
    if not isinstance(listed, list):
        raise ProblemError(f"{place / TASK}: files must be a list")
    files = {str(each.get("name")): each.get("source") for each in listed if isinstance(each, dict)}
    notes = (OTHER_CHECK,) if _has_other_check(place) else ()
    variants = tuple(
        Variant(
            name=workload_name(index, {key: value for key, value in case.items() if key != "seed"}),
            make=partial(_problem, name, place, root, files, case),
            group=group if any(each == TIMED for each, _ in cases) else TIMED,
            notes=notes,
        )
        for index, (group, case) in enumerate(cases)
    )
    return Entry(name=name, variants=variants)


def _cases(said: dict[str, Any], key: str, place: Path) -> list[dict[str, Any]]:
    cases = said.get(key) or []
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise ProblemError(f"{place / TASK}: {key} must be a list of mappings")
    return cases


def _has_other_check(place: Path) -> bool:
    """Return whether the task's check is something other than `make_match_reference`."""
    for node in parse(read_source(place / REFERENCE), str(place / REFERENCE)).body:
        match node:
            case ast.FunctionDef(name=name) if name == CHECK:
                return True
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=maker))) if name == CHECK:
                return maker != "make_match_reference"
    return False


def _problem(name: str, place: Path, root: Path, files: dict[str, Any], case: dict[str, Any]) -> Problem:
    """Return the problem of a task at one case. Raises ProblemError if its reference cannot be used, or if the task
    names a file outside the suite's folder."""
    origin = str(place / REFERENCE)
    named = {
        file.removesuffix(".py"): inside(root, place, source)
        for file, source in files.items()
        if file.endswith(".py") and isinstance(source, str) and file != REFERENCE
    }
    beside = {module: read_source(path) for module, path in named.items() if path.is_file()}
    source = inlined(read_source(place / REFERENCE), beside, origin, without=[CHECK])
    tree = parse(source, origin)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for wanted in ("ref_kernel", "generate_input"):
        if wanted not in functions:
            raise ProblemError(f"{origin}: does not define {wanted}()")
    arguments = [f"{key}={literal(value)}" for key, value in case.items() if key != "seed"]
    takes = functions["generate_input"].args
    if takes.kwarg or "seed" in {each.arg for each in (*takes.args, *takes.kwonlyargs)}:
        arguments.append(f"seed={DRAWN_SEED}")
    call = f"generate_input({', '.join(arguments)})"
    names = _parts(functions["generate_input"])
    module = MODULE.format(
        parameters=", ".join(names or ["data"]),
        data=f"({', '.join(names)},)" if names else "data",
        inputs=f"list({call})" if names else f"[{call}]",
    )
    return problem(name, _on_any_device(source, tree) + module, origin)


def _parts(function: ast.FunctionDef) -> list[str]:
    """Return a name for each part of the tuple that a function returns; empty if its text does not show the parts."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    if not all(isinstance(value, ast.Tuple) for value in returned):
        return []
    parts = [value.elts for value in returned if isinstance(value, ast.Tuple)]
    if len({len(each) for each in parts}) != 1 or any(isinstance(part, ast.Starred) for part in parts[0]):
        return []
    names = [part.id if isinstance(part, ast.Name) else f"data{index}" for index, part in enumerate(parts[0])]
    return names if len(set(names)) == len(names) else [f"data{index}" for index in range(len(names))]


def _on_any_device(source: str, tree: ast.Module) -> str:
    """Return the source with named devices replaced by torch's default device, in the functions that only make
    inputs."""
    makers = reachable(tree, ["generate_input"]) - reachable(tree, ["ref_kernel"])
    lines = source.splitlines()
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name in makers:
            rewriting = _CurrentDevice()
            rewritten = ast.unparse(rewriting.visit(node))
            if rewriting.changed:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                lines[first - 1 : node.end_lineno] = rewritten.splitlines()
    return "\n".join(lines) + "\n"


class _CurrentDevice(ast.NodeTransformer):
    """Replaces devices that are written as text by torch's current default device."""

    def __init__(self) -> None:
        self.changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        named = [each for each in node.args[:1] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        match node.func:
            case ast.Attribute(attr="device") if named:
                return self._current()
            case ast.Attribute(attr="to") if named:
                node.args[0] = self._current()
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        if node.arg == "device" and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value = self._current()
        return node

    def _current(self) -> ast.expr:
        self.changed = True
        return ast.parse("torch.get_default_device()", mode="eval").body

"""Reads a checkout of MultiKernelBench: `reference/<category>/<name>.py`, some with several groups of inputs.

A file has `get_inputs()` as in KernelBench, or `get_input_groups()`, whose cases often come from a file beside it with
one JSON object on each line. Each group is a workload. Its problem contains only its own line of that file, so that it
needs no other file and draws only its own inputs.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kforge.errors import ProblemError
from kforge.problems.discovery import natural
from kforge.problems.readers.files import json_value, text_of
from kforge.problems.readers.protocol import Entry, Variant
from kforge.problems.readers.writing import entry_or_failure, problem
from kforge.problems.source import bound_names, load, parse, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kforge.records import Problem

GROUPS = "get_input_groups"
"""The function that returns several groups of inputs."""
FIRST_GROUP_ONLY = "only its first group of inputs is judged: without running the file, the number of groups is unknown"
CASES_BESIDE = '''\
import io as _io

_CASES = {cases}


def open(path, *arguments, **options):
    """Return the cases of this workload in place of the file of all cases beside the problem."""
    if str(path).endswith({suffix!r}):
        return _io.StringIO(_CASES)
    raise FileNotFoundError(path)


'''
ONE_GROUP = '''

def get_inputs():
    """Return the inputs of this workload: one of the groups."""
    return get_input_groups()[{index}]
'''


class MultiKernelBenchReader:
    """Reads a checkout of MultiKernelBench."""

    name = "multikernelbench"

    def recognizes(self, folder: Path) -> bool:
        for file in _files(folder):
            with suppress(Exception):
                if _is_problem(file):
                    return True
        return False

    def read(self, folder: Path) -> Iterator[Entry]:
        for file in _files(folder):
            with suppress(Exception):  # a file that cannot be read fails below, with the reason
                if not _is_problem(file):
                    continue
            yield entry_or_failure(_name(file), partial(_entry, file))


def _files(folder: Path) -> list[Path]:
    """Return the Python files of the categories, from the checkout or from its folder `reference`."""
    inside = folder / "reference"
    if not inside.is_dir():
        return []
    return sorted((file for file in inside.glob("*/*.py") if file.name != "__init__.py"), key=natural)


def _is_problem(file: Path) -> bool:
    return {"Model", "get_init_inputs"} <= bound_names(_tree(file))


def _tree(file: Path) -> ast.Module:
    return parse(read_source(file), str(file))


def _name(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def _entry(file: Path) -> Entry:
    tree = _tree(file)
    if GROUPS not in bound_names(tree):
        return Entry(name=_name(file), variants=(Variant(name="", make=partial(load, file)),))
    cases = _sidecar(file, tree)
    if cases is not None:
        lines = [line for line in text_of(cases).splitlines() if line.strip()]
        made = [partial(_with_case, file, cases, line) for line in lines]
        if not made:
            raise ProblemError(f"{cases}: has no cases")
    else:
        count = _listed_groups(tree)
        made = [partial(_with_group, file, index) for index in range(count or 1)]
        if count is None:
            return Entry(name=_name(file), variants=(Variant(name="", make=made[0], notes=(FIRST_GROUP_ONLY,)),))
    return Entry(
        name=_name(file),
        variants=tuple(Variant(name=f"group{number}", make=make) for number, make in enumerate(made, 1)),
    )


def _sidecar(file: Path, tree: ast.Module) -> Path | None:
    """Return the JSON file of cases beside a problem that the problem reads; None if it reads none.

    The source names the file, or mentions `.json` or `.jsonl`; then the file has the problem's own name.
    """
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for beside in sorted(file.parent.glob("*.json")) + sorted(file.parent.glob("*.jsonl")):
        if beside.name in named or (beside.stem == file.stem and {".json", ".jsonl"} & named):
            return beside
    return None


def _listed_groups(tree: ast.Module) -> int | None:
    """Return how many groups `get_input_groups` makes if it loops over one list that is written out; None otherwise."""
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.Assign) and _binds(node, GROUPS))
    function = next(functions, None)
    if function is None:  # it is imported, or defined under a condition
        return None
    lists = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    loops = [node.iter for node in ast.walk(function) if isinstance(node, ast.For | ast.comprehension)]
    over = [lists.get(loop.id) if isinstance(loop, ast.Name) else loop for loop in loops]
    sizes = [len(each.elts) for each in over if isinstance(each, ast.List | ast.Tuple)]
    return sizes[0] if len(loops) == 1 and sizes and sizes[0] else None


def _binds(node: ast.FunctionDef | ast.Assign, name: str) -> bool:
    return name in bound_names(ast.Module(body=[node], type_ignores=[]))


def _with_group(file: Path, index: int) -> Problem:
    return problem(_name(file), read_source(file) + ONE_GROUP.format(index=index), str(file))


def _with_case(file: Path, cases: Path, line: str) -> Problem:
    """Return the problem with one line of its file of cases written into it. Raises ProblemError if the line is not
    JSON."""
    json_value(line, str(cases))
    source = read_source(file)
    head, rest = _split_future_imports(source, file)
    # `open` is replaced, because the problem is judged where the folder of its file does not exist
    before = CASES_BESIDE.format(cases=repr(f"{line}\n"), suffix=cases.suffix)
    return problem(_name(file), f"{head}{before}{rest}{ONE_GROUP.format(index=0)}", str(file))


def _split_future_imports(source: str, file: Path) -> tuple[str, str]:
    """Return the text up to the last `from __future__` import, which must stay first, and the rest."""
    last = 0
    for node in parse(source, str(file)).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            last = node.end_lineno or 0
    lines = source.splitlines(keepends=True)
    return "".join(lines[:last]), "".join(lines[last:])

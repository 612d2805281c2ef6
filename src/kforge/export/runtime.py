"""Copies the runtime `kforge.inline` for one program, with only the languages that the program may use."""

from __future__ import annotations

import ast
from pathlib import Path, PurePosixPath

from kforge import inline
from kforge.export.imports import RUNTIME, imported, rewritten, uses_runtime

FOLDER = Path(inline.__file__).parent
"""The folder of the runtime."""
USUAL = "c++"
"""The language of `inline.compile` where a program names none."""
TABLE = "_LANGUAGES"
"""Name of the runtime's dictionary from a language to the function of the module that builds it."""


def files(program: str) -> dict[str, bytes]:
    """Return the files of the runtime that a program needs, by their path relative to the runtime's folder.

    Empty if the program does not import the runtime. Raises InputError if the program is not valid Python, or imports
    another part of kforge.
    """
    if not uses_runtime(program):
        return {}
    first = _trimmed(languages(program))
    modules = {"__init__.py": first}
    left = list(imported(first))
    while left:
        for path in _paths(left.pop()):
            if path not in modules:
                modules[path] = (FOLDER / path).read_text()
                left += imported(modules[path])
    copied = {path: _relative(path, text).encode() for path, text in modules.items()}
    packages = {PurePosixPath(path).parts[0] for path in modules if "/" in path}
    for folder in (*sorted(packages), "include"):
        for file in sorted((FOLDER / folder).rglob("*")):
            if file.is_file() and file.suffix not in (".py", ".pyc"):
                copied[file.relative_to(FOLDER).as_posix()] = file.read_bytes()
    return dict(sorted(copied.items()))


def languages(program: str) -> set[str]:
    """Return the languages that the program may use: the usual one, and all that its source names as a string."""
    known = {name for name, _ in _table(ast.parse((FOLDER / "__init__.py").read_text()))}
    named = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    return {USUAL, *(known & named)}


def _trimmed(kept: set[str]) -> str:
    """Return the runtime's first module with these languages only."""
    source = (FOLDER / "__init__.py").read_text()
    tree = ast.parse(source)
    table = dict(_table(tree))
    unused = {root for name, root in table.items() if name not in kept} - {table[name] for name in kept}
    lines = source.splitlines(keepends=True)
    for node in reversed(tree.body):
        changed: ast.stmt | None = None
        if isinstance(node, ast.ImportFrom) and node.module == RUNTIME:
            left = [alias for alias in node.names if alias.name not in unused]
            changed = ast.ImportFrom(node.module, left, 0)
        elif isinstance(node, ast.Assign) and _is_table(node):
            pairs = [
                (key, value)
                for key, value in zip(node.value.keys, node.value.values, strict=True)  # type: ignore[attr-defined]
                if ast.literal_eval(key) in kept
            ]
            changed = ast.Assign(node.targets, ast.Dict(*map(list, zip(*pairs, strict=True))))
        if changed is not None:
            lines[node.lineno - 1 : node.end_lineno] = [ast.unparse(ast.fix_missing_locations(changed)) + "\n"]
    return "".join(lines)


def _table(tree: ast.Module) -> list[tuple[str, str]]:
    """Return each language with the name of the module that builds it."""
    (node,) = (each for each in tree.body if isinstance(each, ast.Assign) and _is_table(each))
    assert isinstance(node.value, ast.Dict)
    found = []
    for key, value in zip(node.value.keys, node.value.values, strict=True):
        assert isinstance(key, ast.Constant)
        assert isinstance(value, ast.Attribute)
        assert isinstance(value.value, ast.Name)
        found.append((str(key.value), value.value.id))
    return found


def _is_table(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id == TABLE


def _paths(name: str) -> list[str]:
    """Return the files that importing this dotted name reads: the packages on the way, and the module."""
    parts = name.removeprefix(RUNTIME).removeprefix(".").split(".")
    found = []
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        found += [each for each in (f"{path}.py", f"{path}/__init__.py") if (FOLDER / each).is_file()]
    return found


def _relative(path: str, text: str) -> str:
    """Return a module of the runtime with relative imports, so that the copy works under any name."""
    return rewritten(text, "." * len(PurePosixPath(path).parts))

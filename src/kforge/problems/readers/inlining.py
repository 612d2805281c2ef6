"""Inlines imports: copies into a source the code that it uses from the files beside it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kforge.errors import ProblemError
from kforge.problems.source import bound_names, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def inlined(source: str, beside: Mapping[str, str], origin: str, without: Iterable[str] = ()) -> str:
    """Return the source with `from x import y` replaced by the code of `y`, for each module `x` of `beside`.

    `without` names definitions of the source that are left out, with what only they use. Raises ProblemError if a
    module is imported whole, if it lacks a name, or if two modules give a name different meanings.
    """
    tree = parse(source, origin)
    dropped = set(without)
    kept = [node for node in tree.body if not _bound(node) & dropped]
    used = {name for node in kept for name in _used(node)}
    lines = source.splitlines()
    written: set[str] = set()
    text: list[str] = []
    for node in kept:
        module = _module_of(node, beside, origin)
        if module is None:
            text.append(_text(node, lines))
            continue
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            wanted = bound_names(parse(beside[module], module)) if alias.name == "*" else {alias.name}
            if alias.name != "*" and (alias.asname or alias.name) not in used:
                continue
            for piece in _needed(beside, module, wanted, origin):
                if piece not in written:
                    written.add(piece)
                    text.append(piece)
            if alias.asname:
                text.append(f"{alias.asname} = {alias.name}")
    result = "\n".join(_future_first(text)) + "\n"
    _refuse_two_meanings(result, origin)
    return result


def reachable(tree: ast.Module, names: Iterable[str]) -> set[str]:
    """Return the top-level definitions that these names use, directly or through others, with the names themselves."""
    by_name = {name: node for node in tree.body for name in _bound(node)}
    found: set[str] = set()
    left = [name for name in names if name in by_name]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [each for each in _used(by_name[name]) if each in by_name]
    return found


def _needed(beside: Mapping[str, str], module: str, wanted: set[str], origin: str, depth: int = 0) -> list[str]:
    """Return the statements of a module that define these names, and what they use, in their order.

    `beside` are the sources of the modules beside the problem, by name. Raises ProblemError if a name is not defined,
    or if the modules import each other in a circle.
    """
    if depth > len(beside):
        raise ProblemError(f"{origin}: the files beside it import each other in a circle")
    source = beside[module]
    tree = parse(source, f"{origin}: {module}")
    if missing := sorted(wanted - bound_names(tree)):
        raise ProblemError(f"{origin}: {module} does not define {missing[0]}")
    names = reachable(tree, wanted)
    lines = source.splitlines()
    pieces: list[str] = []
    for node in tree.body:
        if not _bound(node) & names:
            continue
        inner = _module_of(node, beside, origin)
        if inner is None:
            pieces.append(_text(node, lines))
        else:
            assert isinstance(node, ast.ImportFrom)
            pieces += _needed(beside, inner, {alias.name for alias in node.names} - {"*"}, origin, depth + 1)
    return pieces


def _module_of(node: ast.stmt, beside: Mapping[str, str], origin: str) -> str | None:
    """Return the module beside the file that a statement imports from; None if it does not. Raises ProblemError if the
    statement imports it whole."""
    if isinstance(node, ast.ImportFrom) and node.module in beside:
        return node.module
    for each in ast.walk(node):
        names = [alias.name for alias in each.names] if isinstance(each, ast.Import) else []
        names += [each.module or ""] if isinstance(each, ast.ImportFrom) else []
        if whole := [name for name in names if name in beside]:
            raise ProblemError(f"{origin}: line {node.lineno}: only `from {whole[0]} import name` at the top is read")
    return None


def _bound(node: ast.stmt) -> set[str]:
    return bound_names(ast.Module(body=[node], type_ignores=[]))


def _used(node: ast.stmt) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _text(node: ast.stmt, lines: list[str]) -> str:
    """Return the text of a top-level statement with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(each.lineno for each in decorators)])
    return "\n".join(lines[first - 1 : node.end_lineno])


def _future_first(pieces: list[str]) -> list[str]:
    """Return the pieces with `from __future__` imports first, where Python wants them."""
    future = [piece for piece in pieces if piece.startswith("from __future__")]
    return [*dict.fromkeys(future), *(piece for piece in pieces if not piece.startswith("from __future__"))]


def _refuse_two_meanings(source: str, origin: str) -> None:
    """Raise ProblemError if a function or class is defined twice: by the file itself, or by files beside it."""
    seen: set[str] = set()
    for node in parse(source, origin).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name in seen:
                raise ProblemError(f"{origin}: it and the files beside it define {node.name} more than once")
            seen.add(node.name)

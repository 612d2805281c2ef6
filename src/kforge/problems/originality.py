"""Detects programs that are only the original module, renamed to `ModelNew`. It compares syntax and runs nothing."""

from __future__ import annotations

import ast

from kforge.syntax import Unparsable, parsed

UNCHANGED = "the answer is the original module, unchanged"
"""Reason that users read about a program that is only the original module."""


def is_unchanged(problem: str, program: str) -> bool:
    """Return whether a program computes only with the problem's own classes.

    Every statement must be an import, a docstring or a copy of a statement of the problem. Classes that derive from a
    copy and change nothing are also allowed. Returns False for a program that cannot be parsed or compared, for example
    because it is nested thousands deep.
    """
    try:
        return _is_unchanged(parsed(problem), parsed(program))
    except (Unparsable, RecursionError, MemoryError, ValueError):
        return False


def _is_unchanged(theirs: ast.Module, ours: ast.Module) -> bool:
    copied = {_text(node) for node in theirs.body}
    original = next((node for node in theirs.body if isinstance(node, ast.ClassDef) and node.name == "Model"), None)
    same = set[str]()
    """Names in the program that mean the original module."""
    for node in ours.body:
        if original is not None and _is_the_original(node, original, same):
            same.add(_name(node))
        elif not (isinstance(node, ast.Import | ast.ImportFrom) or _is_docstring(node) or _text(node) in copied):
            return False
    return "ModelNew" in same


def _is_the_original(node: ast.stmt, original: ast.ClassDef, same: set[str]) -> bool:
    """Return whether a statement defines another name for the original module: an alias, a renamed copy, or a derived
    class that changes nothing. `same` holds the names of the original that were found before."""
    match node:
        case ast.Assign(targets=[ast.Name()], value=ast.Name(id=name)):
            return name in same
        case ast.ClassDef(bases=[ast.Name(id=name)], keywords=[], decorator_list=[]) if name in same:
            return all(_changes_nothing(statement) for statement in node.body)
        case ast.ClassDef():
            return _text(_renamed(node)) == _text(_renamed(original))
    return False


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.ClassDef):
        return node.name
    assert isinstance(node, ast.Assign)
    assert isinstance(node.targets[0], ast.Name)
    return node.targets[0].id


def _changes_nothing(node: ast.stmt) -> bool:
    """Return whether a statement of a derived class leaves everything to its base class."""
    if isinstance(node, ast.Pass) or _is_docstring(node):
        return True
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return False
    match [statement for statement in node.body if not _is_docstring(statement)]:
        case [ast.Return(value=ast.Call() as call) | ast.Expr(value=ast.Call() as call)]:
            return _hands_everything_on(call, node)
    return False


def _hands_everything_on(call: ast.Call, method: ast.FunctionDef) -> bool:
    """Return whether a call is `super().method(…)` with the method's own arguments in their order."""
    function = call.func
    match function:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if name == method.name:
            pass
        case _:
            return False
    taken = method.args
    given = [ast.unparse(each) for each in (*call.args, *call.keywords)]
    expected = [each.arg for each in (*taken.posonlyargs, *taken.args)][1:]
    expected += [f"*{taken.vararg.arg}"] if taken.vararg else []
    expected += [f"{each.arg}={each.arg}" for each in taken.kwonlyargs]
    expected += [f"**{taken.kwarg.arg}"] if taken.kwarg else []
    return given == expected


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _renamed(node: ast.ClassDef) -> ast.ClassDef:
    """Return the class under one name, without docstrings, and with every `super()` written in the same way."""
    copy: ast.ClassDef = ast.parse(ast.unparse(node)).body[0]  # type: ignore[assignment]
    copy.name = "Model"
    for part in ast.walk(copy):
        match part:
            case ast.Call(func=ast.Name(id="super"), args=[ast.Name(), ast.Name()]):
                part.args = []
            case ast.ClassDef() | ast.FunctionDef():
                part.body = [each for each in part.body if not _is_docstring(each)] or [ast.Pass()]
    return copy


def _text(node: ast.stmt) -> str:
    """Return a text that is equal for statements that differ only in layout and comments."""
    return ast.dump(node)

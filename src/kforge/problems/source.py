"""Reads a problem file as text: checks that it defines the required names, and writes the values of `--set NAME=VALUE`
into it."""

from __future__ import annotations

import ast
import errno
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from kforge import reading
from kforge.errors import ProblemError
from kforge.records import Problem
from kforge.syntax import Unparsable, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LARGEST = 16 * 2**20
"""Most bytes of a problem file."""
REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
"""Names that a problem file must define."""


def load(path: Path, overrides: Sequence[str] = ()) -> Problem:
    """Read a problem file, and write the overrides (`NAME=VALUE`) into its source. Nothing is executed.

    Raises ProblemError if the file is missing, unreadable, not Python or lacks a required name. Also if an override
    names no constant of the module, names one that is assigned twice or by unpacking with a star, or is not a Python
    literal.
    """
    source = read_source(path)
    module = parse(source, str(path))
    missing = missing_names(module)
    if missing:
        raise ProblemError(
            f"{path}: does not define {' or '.join(missing)} at module level "
            f"(a problem file has {', '.join(REQUIRED_NAMES[:-1])} and {REQUIRED_NAMES[-1]})"
        )
    values = _parse_overrides(overrides)
    return Problem(
        name=_name(path),
        source=_with_overrides(source, module, values, str(path)),
        overrides=tuple(sorted((name, override.given) for name, override in values.items())),
    )


def read_source(path: Path) -> str:
    """Return the text of a file with its own line ends. Raises ProblemError if it cannot be read as UTF-8."""
    try:
        return reading.text(path, most=LARGEST)
    except FileNotFoundError:
        raise ProblemError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EISDIR):
            raise ProblemError(f"{path}: is not a file; name one problem file") from None
        raise ProblemError(f"{path}: cannot be read: {reading.reason(error)}") from None


def parse(source: str, origin: str) -> ast.Module:
    """Return the syntax tree. Raises ProblemError with the line of a syntax error."""
    try:
        return parsed(source)
    except Unparsable as error:
        line = f"line {error.line}: " if error.line else ""
        raise ProblemError(f"{origin}: is not valid Python: {line}{error.reason}") from None


def missing_names(module: ast.Module) -> list[str]:
    """Return the required names that the module does not define at its top level."""
    bound = bound_names(module)
    return [name for name in REQUIRED_NAMES if name not in bound]


def bound_names(module: ast.Module) -> set[str]:
    """Return the names that a module defines at its top level."""
    return {name for name, _ in _bindings(module.body)}


def _name(path: Path) -> str:
    """Return the problem's name: the file's, or its folder's if the file is `problem.py`. Bytes that are not UTF-8 are
    escaped."""
    stem = (path.resolve().parent.name or path.stem) if path.stem == "problem" else path.stem
    return os.fsencode(stem).decode("utf-8", "backslashreplace")


# --- overrides --------------------------------------------------------------------------------------------


class _Override(NamedTuple):
    """One `--set NAME=VALUE`."""

    given: str
    """The value as the user wrote it."""
    literal: str
    """The value as one line of Python without comments, in parentheses if needed."""


def _parse_overrides(overrides: Sequence[str]) -> dict[str, _Override]:
    """Return the overrides by name. Raises ProblemError for a malformed or repeated one."""
    values: dict[str, _Override] = {}
    for text in overrides:
        name, equals, given = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier():
            raise ProblemError(f"override {text!r} is not of the form NAME=VALUE")
        if name in values:
            raise ProblemError(f"{name} is set twice; give one value")
        values[name] = _Override(given, _canonical_literal(name, given))
    return values


def _canonical_literal(name: str, given: str) -> str:
    """Return the value as one line of Python. Raises ProblemError if it is not a literal."""
    try:
        ast.literal_eval(given)
        return ast.unparse(ast.parse(given, mode="eval"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ProblemError(
            f"{name}={' '.join(given.split())}: the value is not a Python literal (a string needs quotes)"
        ) from None


def _with_overrides(source: str, module: ast.Module, values: dict[str, _Override], origin: str) -> str:
    """Return the source with the values written into it. All other bytes stay the same."""
    if not values:
        return source
    text = source.encode()
    line_starts = [0, *(end.end() for end in re.finditer(rb"\r\n|\r|\n", text))]
    edits: list[tuple[int, int, bytes]] = []
    for name, override in values.items():
        place = _settable_place(module, name, origin)
        assert place.end_lineno is not None
        assert place.end_col_offset is not None
        start = line_starts[place.lineno - 1] + place.col_offset
        end = line_starts[place.end_lineno - 1] + place.end_col_offset
        if isinstance(place, ast.stmt):
            edits.append((end, end, f"; {name} = {override.literal}".encode()))
        else:
            edits.append((start, end, override.literal.encode()))
    for start, end, literal in sorted(edits, reverse=True):
        text = text[:start] + literal + text[end:]
    return text.decode()


def _settable_place(module: ast.Module, name: str, origin: str) -> ast.expr | ast.stmt:
    """Return the expression to replace by the value, or the statement after which to assign it. Raises ProblemError
    if the name cannot be set."""
    constants = dict(_constants(module))
    lines = [line for bound, line in _bindings(module.body) if bound == name]
    if len(lines) > 1:
        places = " and ".join(str(line) for line in lines)
        raise ProblemError(f"{origin}: {name} is bound more than once (lines {places}), so it cannot be set")
    if name in (line_of := dict(_starred(module))):
        raise ProblemError(
            f"{origin}: line {line_of[name]} unpacks {name} with a star, so it cannot be set; assign it separately"
        )
    if name not in constants:
        choices = ", ".join(sorted(constants)) or "none"
        raise ProblemError(f"{origin}: has no module-level constant {name}; those that can be set: {choices}")
    return constants[name]


def _constants(module: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield each name that is assigned at the top level, with the expression of its value, or else with the statement.

    `A = 1`, `A: int = 1` and `A, B = 1, 2` have one expression for each name. In `A = B = 1` and `A, B = SHAPE`
    replacing the expression would change other names, too.
    """
    for statement in module.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Assign(targets=[target], value=value) if not _has_star(target):
                yield from _pairs(target, value, statement)
            case ast.Assign(targets=targets):
                for target in targets:
                    if not _has_star(target):
                        yield from ((name, statement) for name, _ in _bindings([target]))


def _pairs(target: ast.expr, value: ast.expr, statement: ast.stmt) -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield each name of an assignment's target with the expression of its value, or else with the statement."""
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ((ast.Tuple(elts=targets) | ast.List(elts=targets)), (ast.Tuple(elts=values) | ast.List(elts=values))) if (
            len(targets) == len(values) and not any(isinstance(each, ast.Starred) for each in values)
        ):
            for one, its in zip(targets, values, strict=True):
                yield from _pairs(one, its, statement)
        case _:
            yield from ((name, statement) for name, _ in _bindings([target]))


def _starred(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of assignments that unpack with a star, with their lines."""
    for statement in module.body:
        if isinstance(statement, ast.Assign):
            yield from _bindings([target for target in statement.targets if _has_star(target)])


def _has_star(target: ast.expr) -> bool:
    return any(isinstance(node, ast.Starred) for node in ast.walk(target))


def _bindings(statements: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield every name that is bound in the module's own scope, with its line, also inside `if`, `try` and `for`.

    The search does not recurse: a sum of a thousand terms is valid Python, and is a thousand nested expressions.
    """
    left = list(reversed(statements))
    while left:
        node = left.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.Import() | ast.ImportFrom():
                yield from ((a.asname or a.name.partition(".")[0], node.lineno) for a in node.names)
            case ast.AnnAssign(target=ast.Name(), value=None):
                pass  # a bare annotation binds nothing
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass  # a scope of its own
            case _:
                left += reversed(list(ast.iter_child_nodes(node)))

"""Checks a candidate's source without running it: the syntax, the class ModelNew, and clumsy attempts to cheat.

A program that imports a part of kforge other than `kforge.inline`, or that replaces a clock, is rejected. The referee
judges everything else by running the program.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kforge.records import CompilationFailure, GenerationFailure, Rejected
from kforge.syntax import Unparsable, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY = "ModelNew"
"""Name that every candidate must define: the class of its module."""
RUNTIME = "kforge.inline"
"""The only part of kforge that a candidate may import, with its submodules."""
LONGEST_LINE = 400
"""Most characters of a source line that a log quotes."""
LONGEST_CHAIN = 8
"""Most attribute names of `a.b.c…` that a reason quotes; the last ones are kept."""
CLOCKS = frozenset({"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "synchronize"})
"""Attributes of `time` and `torch` that a candidate may not assign to."""


def scan(source: str) -> GenerationFailure | CompilationFailure | Rejected | None:
    """Return the verdict if the source alone decides it. Returns None if the program must be run to be judged."""
    if not source.strip():
        return GenerationFailure(reason="the program is empty")
    try:
        tree = parsed(source)
    except Unparsable as error:
        line = f" (line {error.line})" if error.line is not None else ""
        return CompilationFailure(reason=f"not valid Python: {error.reason}{line}", log=_around(source, error.line))
    if ENTRY not in set(_names_bound(tree)):
        return GenerationFailure(reason=f"the program does not define {ENTRY}")
    return _tampering(tree)


def _names_bound(tree: ast.Module) -> Iterator[str]:
    """Yield every name that the module binds in its global scope, at any depth of `if`, `for`, `with` and so on.

    The search does not recurse: a thousand `elif` are valid Python, and are a thousand nested statements.
    """
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Lambda() | ast.AnnAssign(value=None):  # a scope of its own, and an annotation that binds nothing
                pass
            case ast.comprehension():  # its names are local; a walrus in it binds outside
                left += [node.iter, *node.ifs]
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
                left += ast.iter_child_nodes(node)
            case _:
                left += ast.iter_child_nodes(node)


def _tampering(tree: ast.Module) -> Rejected | None:
    """Return a rejection if the program imports the evaluator or assigns to a clock; None if it does neither.

    A bare `import kforge` is allowed: it imports no other part of kforge.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names):
                modules = [f"{module}.{alias.name}" for alias in names]
            case _:
                modules = []
        for module in modules:
            if module.startswith("kforge.") and not f"{module}.".startswith(f"{RUNTIME}."):
                reason = f"the program imports {module}; of kforge, a program may import only {RUNTIME}"
                return Rejected(rule="evaluator_import", reason=reason)
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if (clock := _clock(target)) is not None:
                    reason = f"the program replaces {clock} (line {node.lineno})"
                    return Rejected(rule="clock_patched", reason=reason)
    return None


def _clock(target: ast.expr) -> str | None:
    """Return the dotted name if an assignment's target is a clock, such as `time.perf_counter` or
    `torch.cuda.synchronize`.

    Returns None for any other target, such as `self.time`.
    """
    root, names = target, list[str]()
    while isinstance(root, ast.Attribute):
        names.append(root.attr)
        root = root.value
    if not names or names[0] not in CLOCKS or not isinstance(root, ast.Name) or root.id not in ("time", "torch"):
        return None
    return ".".join([root.id, *reversed(names[:LONGEST_CHAIN])])


def _around(source: str, line: int | None, context: int = 3) -> str:
    """Return the lines around an error, with their numbers; an empty string if the line is unknown."""
    if line is None:
        return ""
    lines = re.split(r"\r\n|\r|\n", source)  # the ends that Python counts: not a form feed, unlike `splitlines`
    first = max(0, line - 1 - context)
    shown = (f"{n + 1:4d} | {lines[n][:LONGEST_LINE]}" for n in range(first, min(len(lines), line + context)))
    return "\n".join(shown).encode("utf-8", "backslashreplace").decode()  # lone surrogates cannot be stored

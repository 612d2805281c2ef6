"""What can be said of a candidate without running it: whether it is a program at all, and what it touches.

A tripwire, not a judge: hard-rejects only programs that reach for the evaluator itself. Everything that matters is
decided by the referee on what the program does.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kforge.records import CompilationFailure, GenerationFailure, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY = "ModelNew"
FORBIDDEN_IMPORTS = ("kforge.evaluation", "kforge.problems", "kforge.records", "kforge.store", "kforge.loop")
"""The only part of kforge a candidate may import is `kforge.inline`."""
CLOCKS = frozenset({"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "synchronize"})


def scan(source: str) -> GenerationFailure | CompilationFailure | Rejected | None:
    """The verdict on a text that need not be run, or None."""
    if not source.strip():
        return GenerationFailure(reason="the program is empty")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        reason = f"not valid Python: {error.args[0] if error.args else error}{line}"
        return CompilationFailure(reason=reason, log=_around(source, getattr(error, "lineno", None)))
    if ENTRY not in set(_names_bound(tree.body)):
        return GenerationFailure(reason=f"the program does not define {ENTRY}")
    return _tampering(tree)


def _names_bound(body: list[ast.stmt]) -> Iterator[str]:
    """Names bound at module level, also inside `if`, `try` and `with`."""
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                for inner in ("body", "orelse", "finalbody"):
                    yield from _names_bound(getattr(node, inner, []))
                for handler in getattr(node, "handlers", []):
                    yield from _names_bound(handler.body)


def _tampering(tree: ast.Module) -> Rejected | None:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names):
                modules = [f"{module}.{alias.name}" for alias in names]
            case _:
                modules = []
        for module in modules:
            if module.startswith(FORBIDDEN_IMPORTS):
                return Rejected(
                    rule="evaluator_import", reason=f"the program imports {module}, the evaluator's own code"
                )
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if _is_clock(target):
                    reason = f"the program replaces {ast.unparse(target)} (line {node.lineno})"
                    return Rejected(rule="clock_patched", reason=reason)
    return None


def _is_clock(target: ast.expr) -> bool:
    """`time.perf_counter` and `torch.cuda.synchronize`, but not `self.time`."""
    root = target
    while isinstance(root, ast.Attribute):
        root = root.value
    owner = isinstance(root, ast.Name) and root.id in ("time", "torch")
    return owner and isinstance(target, ast.Attribute) and target.attr in CLOCKS


def _around(source: str, line: int | None, context: int = 3) -> str:
    if line is None:
        return ""
    lines = source.splitlines()
    first = max(0, line - 1 - context)
    return "\n".join(f"{n + 1:4d} | {lines[n]}" for n in range(first, min(len(lines), line + context)))

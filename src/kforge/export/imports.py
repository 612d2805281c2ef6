"""Rewrites a program's imports of `kforge.inline`, so that it uses a copy of the runtime instead."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kforge.errors import InputError
from kforge.syntax import Unparsable, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = "kforge"
RUNTIME = "kforge.inline"


def rewritten(source: str, runtime: str) -> str:
    """Return the source with every import of `kforge.inline` replaced by one of `runtime`.

    `runtime` is where the copy can be imported from: `.inline` (beside the program), `..` (from a sub-package of the
    runtime itself) or the name of a module. All other text stays as it is. Raises InputError if the source is not valid
    Python, or imports another part of kforge.
    """
    try:
        tree = parsed(source)
    except Unparsable as error:
        raise InputError(f"the program is not valid Python: {error.reason}") from error
    lines = source.encode().splitlines(keepends=True)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        if (text := _replacement(node, runtime)) is None:
            continue
        assert node.end_lineno is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        lines[first : last + 1] = [before + text.encode() + after]
    return b"".join(lines).decode()


def uses_runtime(source: str) -> bool:
    """Return whether the program imports `kforge.inline`. Raises InputError as `rewritten` does."""
    return rewritten(source, ".inline") != source


def imported(source: str) -> Iterator[str]:
    """Yield the dotted names of everything that a module of the runtime may import from `kforge.inline`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and _is_runtime(node.module):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _replacement(node: ast.Import | ast.ImportFrom, runtime: str) -> str | None:
    """Return the statements that replace an import from kforge; None for all other imports."""
    match node:
        case ast.Import(names=names) if any(_is_ours(alias.name) for alias in names):
            return "; ".join(_import(alias, runtime) for alias in names)
        case ast.ImportFrom(module=str(module), level=0, names=names) if _is_ours(module):
            if module == OURS:
                return "; ".join(_member(alias, runtime) for alias in names)
            if _is_runtime(module):
                return f"from {_below(runtime, module)} import {', '.join(map(ast.unparse, names))}"
            raise _unusable(module)
    return None


def _import(alias: ast.alias, runtime: str) -> str:
    if not _is_ours(alias.name):
        return f"import {ast.unparse(alias)}"
    if alias.name != RUNTIME:
        raise _unusable(alias.name)
    if alias.asname is not None:
        return _bound(runtime, alias.asname)
    # `import kforge.inline` binds `kforge`, whose attribute the program uses
    types = "from types import SimpleNamespace as _Namespace"
    return f"{_bound(runtime, '_inline')}; {types}; {OURS} = _Namespace(inline=_inline)"


def _member(alias: ast.alias, runtime: str) -> str:
    if alias.name != "inline":
        raise _unusable(f"{OURS}.{alias.name}")
    return _bound(runtime, alias.asname or "inline")


def _bound(runtime: str, name: str) -> str:
    """Return the statement that binds the runtime to a name."""
    if not runtime.startswith("."):
        return f"import {runtime} as {name}"
    dots, last = runtime[: len(runtime) - len(runtime.lstrip("."))], runtime.lstrip(".")
    return f"from {dots} import {last}" + (f" as {name}" if name != last else "")


def _below(runtime: str, module: str) -> str:
    rest = module.removeprefix(RUNTIME).removeprefix(".")
    if not rest:
        return runtime
    return f"{runtime}{rest}" if runtime.endswith(".") else f"{runtime}.{rest}"


def _is_ours(module: str | None) -> bool:
    return module is not None and (module == OURS or module.startswith(f"{OURS}."))


def _is_runtime(module: str | None) -> bool:
    return module is not None and (module == RUNTIME or module.startswith(f"{RUNTIME}."))


def _unusable(module: str) -> InputError:
    return InputError(f"the program imports {module}, which is not exported: only {RUNTIME} can be copied")

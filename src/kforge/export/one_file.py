"""A program as one file that needs no kforge: the runtime is packed into it, and unpacked on import."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import re
import textwrap
import zipfile
from typing import TYPE_CHECKING

from kforge.export.imports import rewritten
from kforge.export.writing import filled

if TYPE_CHECKING:
    from kforge.export.solution import Solution

FIRST = (1980, 1, 1, 0, 0, 0)
"""Time of every packed file: the earliest that a ZIP file can state, so that the same files give the same text."""

_SPACE = rb"(?:[ \t\f]|\\(?:\r\n|\r|\n))*"
_TO_NEXT_STATEMENT = re.compile(_SPACE + rb";?" + _SPACE + rb"(?P<line_end>(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z))?")
"""What follows the end of a statement: up to the end of its line, or up to the next statement on the same line."""


def one_file(solution: Solution) -> str:
    """Return the program with its runtime packed into it; unchanged if it needs none.

    Raises InputError if the program cannot do without kforge.
    """
    if not solution.runtime:
        return solution.candidate.source
    packed = _packed(solution.runtime)
    name = f"kforge_inline_{hashlib.sha256(packed).hexdigest()[:12]}"
    values = {
        "made_by": solution.made_by,
        "name": name,
        "files": ", ".join(solution.runtime),
        "packed": textwrap.fill(base64.b64encode(packed).decode(), 110),
    }
    # the statements of `from __future__` must stay first, so the unpacking follows them
    first, rest = _after_future_imports(rewritten(solution.candidate.source, name))
    return first + filled("one_file.py.j2", values) + rest


def _packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, FIRST), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _after_future_imports(source: str) -> tuple[str, str]:
    """Return the source up to and with its docstring and its last `from __future__` import, and the rest."""
    last: ast.stmt | None = None
    for index, node in enumerate(ast.parse(source).body):
        is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        last = node
    if last is None:
        return "", source
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    # in bytes, which `ast` counts; and of bytes, `splitlines` splits only where Python ends a line
    data = source.encode()
    lines = data.splitlines(keepends=True)
    end = sum(map(len, lines[: last.end_lineno - 1])) + last.end_col_offset
    found = _TO_NEXT_STATEMENT.match(data, end)
    assert found is not None
    if found["line_end"] is not None:
        return data[: found.end()].decode(), data[found.end() :].decode()
    # another statement follows on the same line, after a semicolon
    return data[:end].decode() + "\n", data[found.end() :].decode()

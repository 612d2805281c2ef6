"""A program as one file that needs no kforge: the runtime is packed into its end, and unpacked when it is imported."""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import textwrap
import zipfile
from typing import TYPE_CHECKING

from kforge.export.imports import rewritten
from kforge.export.writing import filled

if TYPE_CHECKING:
    from kforge.export.solution import Solution

FIRST = (1980, 1, 1, 0, 0, 0)
"""Time of every packed file: the earliest that a ZIP file can state, so that the same files give the same text."""


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
    end = 0
    for index, node in enumerate(ast.parse(source).body):
        is_docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        assert node.end_lineno is not None
        end = node.end_lineno
    lines = source.splitlines(keepends=True)
    return "".join(lines[:end]), "".join(lines[end:])

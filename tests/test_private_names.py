"""Names that torch, Triton and pyopencl do not promise: docs/dependencies.md lists all of them, and all still exist."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(
    path
    for path in (ROOT / "src" / "kforge").rglob("*.py")
    if {"example", "suites"}.isdisjoint(path.relative_to(ROOT).parts)
)
LISTED = re.findall(
    r"^\| `((?:torch|triton|pyopencl)\.[\w.]+)` \|", (ROOT / "docs" / "dependencies.md").read_text(), re.M
)
INTERNAL = ("triton.runtime", "triton.backends", "triton.compiler")
"""Modules of Triton without an underscore that its documentation does not name."""
BY_STRING = {"torch.utils.cpp_extension._write_ninja_file_and_build_library"}
"""Names that no import and no attribute in the source shows."""


def is_private(name: str) -> bool:
    parts = name.split(".")
    hidden = any(part.startswith("_") and not part.startswith("__") for part in parts)
    return parts[0] in ("torch", "triton", "pyopencl") and (hidden or name.startswith(INTERNAL))


def used_in(tree: ast.AST) -> Iterator[str]:
    """Private names that a module imports or reaches through what it imports, as long as they are written."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for each in names:
                    known[each.asname or each.name.split(".")[0]] = (
                        each.name if each.asname else each.name.split(".")[0]
                    )
                    yield each.name
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for each in names:
                    known[each.asname or each.name] = f"{module}.{each.name}"
                    yield f"{module}.{each.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (written := ast.unparse(node)).replace(".", "").isidentifier():
            first, _, rest = written.partition(".")
            if first in known:
                yield f"{known[first]}.{rest}"


def found(name: str) -> Any:
    """What a dotted name means. Raises AttributeError or ImportError where it means nothing."""
    module, *rest = name.split(".")
    here: Any = importlib.import_module(module)
    for part in rest:
        module = f"{module}.{part}"
        here = getattr(here, part) if hasattr(here, part) else importlib.import_module(module)
    return here


def is_covered(name: str) -> bool:
    """Whether a name is listed, belongs to one that is, or is on the way to one."""
    return any(f"{name}.".startswith(f"{each}.") or f"{each}.".startswith(f"{name}.") for each in LISTED)


@cache
def everything_used() -> set[str]:
    return {name for path in MODULES for name in used_in(ast.parse(path.read_text()))}


def test_every_private_name_is_listed() -> None:
    used = {name for name in everything_used() if is_private(name)}
    assert used, "the source is read"
    assert sorted(name for name in used if not is_covered(name)) == []


def test_nothing_is_listed_that_is_not_used() -> None:
    used = everything_used() | BY_STRING
    assert [each for each in LISTED if not any(f"{name}.".startswith(f"{each}.") for name in used)] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch's own compiler uses what torch deprecates
@pytest.mark.parametrize("name", [each for each in LISTED if each.startswith("torch.") and "_cuda_" not in each])
def test_torch_still_has(name: str) -> None:
    assert found(name) is not None or name.endswith("_state")


@pytest.mark.parametrize("name", [each for each in LISTED if each.startswith("triton.")])
def test_triton_still_has(name: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    assert found(name) is not None


def test_a_name_that_is_gone_is_noticed() -> None:
    with pytest.raises(ImportError):
        found("torch._C._no_such_name")

"""The copy of the runtime is whole, has only the languages that a program may use, and needs nothing of kforge."""

from __future__ import annotations

import ast
import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from kforge import inline
from kforge.export import runtime

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "from kforge import inline\nlibrary = inline.compile(source)\n"


@pytest.mark.parametrize("language", sorted(inline._LANGUAGES))
def test_a_copy_imports_nothing_of_kforge_and_all_that_it_imports_is_there(language: str) -> None:
    files = runtime.files(f'from kforge import inline\ninline.compile(source, "{language}")')
    headers = {f"include/kforge/{name}" for name in ("functions.h", "math.h", "math.wgsl")}
    assert {*headers, "headers/expansion.py"} <= set(files)
    assert ("headers/wgsl.py" in files) == (language == "webgpu")
    for path, content in files.items():
        if not path.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Import):
                assert all(not alias.name.startswith("kforge") for alias in node.names), path
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                assert not (node.module or "").startswith("kforge"), path
            elif isinstance(node, ast.ImportFrom):
                folder = path.split("/")[:-1]
                here = folder[: len(folder) - node.level + 1] + (node.module or "").split(".") * bool(node.module)
                modules = {"/".join([*here, alias.name]) for alias in node.names} | {"/".join(here)}
                assert any(f"{m}.py" in files or f"{m}/__init__.py" in files or m == "" for m in modules), (path, here)


def test_a_program_gets_the_languages_that_it_names() -> None:
    assert runtime.languages(PROGRAM) == {"c++"}
    for language in inline._LANGUAGES:
        assert runtime.languages(f"{PROGRAM}x = {language!r}") == {"c++", language}


def test_a_program_without_the_runtime_gets_none() -> None:
    assert runtime.files("import torch") == {}


def test_a_copy_compiles_under_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, content in runtime.files(PROGRAM).items():
        (tmp_path / "copied" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copied" / path).write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    copied = importlib.import_module("copied")
    try:
        copied.configure(cache=tmp_path / "builds")
        library = copied.compile('extern "C" void f(float* x, long n) { for (long i = 0; i < n; ++i) x[i] += 1; }')
        import torch

        x = torch.zeros(3)
        library.f(x, 3)
        assert x.tolist() == [1, 1, 1]
        with pytest.raises(copied.ToolchainError, match=r"known languages: c\+\+$"):
            copied.compile("", "none")
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "copied"]:
            del sys.modules[name]

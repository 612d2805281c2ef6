"""The rules of the house that neither ruff, mypy nor import-linter can state."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "kforge"
# A platform's example is data: text for a prompt and for the doctor. So are the problems of suites.
MODULES = {
    path.relative_to(PACKAGE).as_posix(): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if {"example", "suites"}.isdisjoint(path.relative_to(PACKAGE).parts)
}
OUTSIDE_PLATFORMS = {name: path for name, path in MODULES.items() if not name.startswith("platforms/")}

BUILT_IN = {manifest.parent.name for manifest in PACKAGE.glob("platforms/*/platform.toml")}
# Proper nouns, some known before their folders are: a name that slips in early would have to be dug out later.
PROPER_NOUNS = {"cuda", "hip", "metal", "mps", "opencl", "pallas", "rocm", "sycl", "triton", "webgpu"}
# torch calls host memory "cpu", whatever platform a candidate is for. A module below may say so that many times.
HOST_MEMORY: dict[str, int] = {}
# inline and the smith speak languages, and some are called as a platform is. A language's own folder may say its name,
# and the table of languages so many times: an import and one line.
LANGUAGES = [
    ("inline/__init__.py", "cuda", "inline/cuda/", 3),
    ("inline/__init__.py", "hip", "inline/hip/", 3),
    ("inline/__init__.py", "cuda", "inline/hip/", 0),  # torch's name for its device, and clang's for its flags
    ("inline/__init__.py", "rocm", "inline/hip/", 0),  # what its torch is built for
    ("inline/__init__.py", "metal", "inline/metal/", 3),
    ("inline/__init__.py", "opencl", "inline/opencl/", 3),
    ("inline/__init__.py", "sycl", "inline/sycl/", 3),
    ("inline/__init__.py", "opencl", "inline/sycl/", 0),  # one of the drivers that it runs on
    ("inline/__init__.py", "webgpu", "inline/webgpu/", 3),
    ("inline/__init__.py", "metal", "inline/webgpu/", 0),  # one of the drivers that it runs on
    ("inline/__init__.py", "mps", "inline/metal/", 0),  # torch's name for it
    ("smith/languages/__init__.py", "triton", "smith/languages/triton/", 3),
    # a dialect's module is found by its name
    ("smith/languages/__init__.py", "cuda", "smith/languages/simt/dialects/cuda.py", 0),
    ("smith/languages/__init__.py", "cuda", "smith/languages/simt/dialects/hip.py", 0),  # its text is nearly the same
    ("smith/languages/__init__.py", "hip", "smith/languages/simt/dialects/hip.py", 0),
    ("smith/languages/__init__.py", "metal", "smith/languages/simt/dialects/metal.py", 0),
    ("smith/languages/__init__.py", "opencl", "smith/languages/simt/dialects/opencl.py", 0),
    ("smith/languages/__init__.py", "sycl", "smith/languages/simt/dialects/sycl.py", 0),
    ("smith/languages/__init__.py", "webgpu", "smith/languages/simt/dialects/wgsl.py", 0),
]

# a worker, whose build has a deadline, waits for another worker of the same program
LOCKS_ITS_OWN_BUILDS = {"evaluation/worker/extensions.py"}


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))))


def parts(identifier: str) -> list[str]:
    """`CudaEvent` and `cuda_event` have two each."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)


def spoken(text: str) -> list[str]:
    """The whole words of a string; `libtorch_cpu.so` is a file's name, and nobody's platform is /dev/null or a flag."""
    return re.findall(r"\b[A-Za-z]+\b", re.sub(r"^-f[a-z-]+$", "", text.replace(os.devnull, "")))


def words(tree: Iterable[ast.AST]) -> Iterator[str]:
    """Every word the code itself says: parts of identifiers and of strings, but no docstring and no comment.

    Docstrings are bare strings: of modules, classes and functions, and those under attributes.
    """
    tree = tuple(tree)
    said_only_to_readers = {node.value for node in tree if isinstance(node, ast.Expr)}
    for node in tree:
        match node:
            case ast.Constant(value=str(text)) if node not in said_only_to_readers:
                yield from spoken(text)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)) | ast.alias(name=name):
                yield from parts(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield from parts(name)
            case ast.Attribute(attr=name):
                # Other people's names: os.cpu_count, Tensor.cpu, the profiler's self_cpu_time_total.
                yield from (word for word in parts(name) if word not in BUILT_IN - PROPER_NOUNS)


def names_a_platform(word: str) -> bool:
    # NULL is SQL and CPU a device; the folders' names are lower case. The others are proper nouns in any case.
    return word in BUILT_IN or word.lower() in PROPER_NOUNS


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ('if manifest.name == "cpu": ...', ["cpu"]),
        ('raise ValueError(f"{name} needs CUDA")', ["CUDA"]),
        ("torch.cuda.synchronize()", ["cuda"]),
        ("class MetalTimer: ...", ["Metal"]),
        ("def flush_cpu(): ...", ["cpu"]),
        ("threads = os.cpu_count(); host = tensor.cpu()", []),
        ('open("/dev/null"); load("libtorch_cpu.so"); compile("-fno-delete-null-pointer-checks")', []),
        ('"""Null and cpu in a docstring."""; statement = "NOT NULL"', []),
    ],
)
def test_the_rule_about_names_is_fair(code: str, named: list[str]) -> None:
    assert {"cpu", "null"} <= BUILT_IN
    assert [word for word in words(ast.walk(ast.parse(code))) if names_a_platform(word)] == named


# Each rule is one test over all modules: a test for every module took longer to collect, in every process, than to run.
def test_no_module_outside_platforms_names_a_platform() -> None:
    assert OUTSIDE_PLATFORMS
    found = {}
    for name, path in OUTSIDE_PLATFORMS.items():
        named = [word for word in words(nodes(path)) if names_a_platform(word)]
        allowed = ["cpu"] * HOST_MEMORY.get(name, 0)
        for table, language, folder, times in LANGUAGES:
            if name.startswith(folder):
                named = [word for word in named if word.lower() != language]
            if name == table:
                allowed += [language] * times
        if sorted(word.lower() for word in named) != sorted(allowed):
            found[name] = named
    assert found == {}


def test_no_prompt_names_a_platform() -> None:
    templates = sorted(PACKAGE.glob("prompts/**/*.j2"))
    assert templates
    for template in templates:
        assert [word for word in spoken(template.read_text()) if names_a_platform(word)] == []


def test_the_exceptions_are_still_needed() -> None:
    assert set(HOST_MEMORY) | {table for table, *_ in LANGUAGES} <= set(OUTSIDE_PLATFORMS)
    for _, _, folder, _ in LANGUAGES:
        assert any(name.startswith(folder) for name in OUTSIDE_PLATFORMS)


def test_no_module_is_longer_than_500_lines() -> None:
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: length for name, length in lines.items() if length > 500} == {}


def test_no_folder_has_more_than_15_modules() -> None:
    counts = Counter(path.parent for path in MODULES.values() if path.name != "__init__.py")
    assert {folder: count for folder, count in counts.items() if count > 15} == {}


def test_no_public_function_has_more_than_8_parameters() -> None:
    found = []
    for name, path in MODULES.items():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
                given = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                if len([each for each in given if each not in ("self", "cls")]) > 8:
                    found.append(f"{name}: {node.name}")
    assert found == []


def test_a_module_is_named_for_its_idea() -> None:
    vague = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers", "handler", "handlers"}
    assert [name for name in MODULES if not vague.isdisjoint(re.split(r"[/_.]", name))] == []


SIBLINGS = ("inline/", "platforms/", "smith/languages/")
"""Rooms in which every language or platform has its own class for the same idea."""


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        if not name.startswith(SIBLINGS):
            for node in nodes(path):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(name)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


WRITE_AN_ENVIRONMENT = {
    "evaluation/worker/extensions.py",
    "evaluation/processes/fork_requests.py",
    "evaluation/processes/worker_fork_server.py",
    "evaluation/referee/main.py",
    "evaluation/worker/main.py",
}
"""Inside a worker, torch and compilers are told by variables where they may write, and what loads a sanitizer is taken
back once it is loaded; a referee takes on what it is told. Nothing is read from them."""


READS_A_TOOLKIT = {"inline/cuda/toolkit.py"}
"""inline stands alone beside an exported kernel, so nobody else can tell it where CUDA_HOME is."""


def test_only_settings_reads_the_environment() -> None:
    readers = {"environ", "environb", "getenv", "getenvb", "expandvars"}
    found = []
    for name in sorted(set(MODULES) - {"settings.py"} - WRITE_AN_ENVIRONMENT - READS_A_TOOLKIT):
        for node in nodes(MODULES[name]):
            match node:
                case ast.Attribute(attr=attr) | ast.alias(name=attr) if attr in readers:
                    found.append(f"{name} reads the environment through {attr}")
    assert found == []


def test_no_module_waits_for_a_lock_for_ever() -> None:
    """A program can hold a lock on every file that it may read, for as long as it runs."""
    found = []
    for name in sorted(set(MODULES) - LOCKS_ITS_OWN_BUILDS):
        for node in nodes(MODULES[name]):
            match node:
                case ast.Call(func=ast.Attribute(attr="flock" | "lockf", value=ast.Name(id="fcntl"))):
                    found += [f"{name}: {ast.unparse(node)}"] if "LOCK_NB" not in ast.unparse(node) else []
    assert found == []


def test_only_the_cli_prints() -> None:
    found = []
    for name in (name for name in MODULES if not name.startswith("cli/")):
        for node in nodes(MODULES[name]):
            match node:
                case ast.Call(func=ast.Name(id="print" | "pprint")):
                    found.append(f"{name}:{node.lineno} prints")
                case ast.Call(func=ast.Attribute(attr="write", value=ast.Attribute(attr="stdout" | "stderr"))):
                    found.append(f"{name}:{node.lineno} writes to a standard stream")
                case ast.Import(names=names) if {alias.name.split(".")[0] for alias in names} & {"rich", "typer"}:
                    found.append(f"{name}:{node.lineno} imports a library for terminals")
                case ast.ImportFrom(module=str(module)) if module.split(".")[0] in {"rich", "typer"}:
                    found.append(f"{name}:{node.lineno} imports a library for terminals")
    assert found == []


def loaded_after_importing(*modules: str) -> dict[str, list[str]]:
    """The expensive libraries in a fresh interpreter after each import; the imports themselves print nothing."""
    program = (
        "import importlib, json, sys\n"
        "heavy = ('torch', 'numpy', 'sqlalchemy', 'jinja2', 'pydantic_ai')\n"
        "seen = {}\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        "    seen[name] = [library for library in heavy if library in sys.modules]\n"
        "print(json.dumps(seen))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    seen: dict[str, list[str]] = json.loads(line)
    return seen


def test_no_room_imports_torch_at_its_door() -> None:
    rooms = sorted({name.split("/")[0].removesuffix(".py") for name in MODULES} - {"__init__", "__main__"})
    seen = loaded_after_importing("kforge", *(f"kforge.{room}" for room in rooms))
    assert {name for name, libraries in seen.items() if "torch" in libraries} == set()


def test_the_command_line_loads_nothing_expensive_before_it_is_needed() -> None:
    assert loaded_after_importing("kforge.cli") == {"kforge.cli": []}


@pytest.mark.parametrize("name", [name for name, path in MODULES.items() if "__all__" in path.read_text()])
def test_all_is_true(name: str) -> None:
    dotted = ".".join(("kforge", *Path(name).with_suffix("").parts)).removesuffix(".__init__")
    module = importlib.import_module(dotted)
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert [public for public in module.__all__ if not hasattr(module, public)] == []

"""Nothing that is trusted unpickles, evaluates or maps what a worker sent: no module of kforge has the means to.

The few that do, and what they do it to, are listed. Reading the source is enough because the rule is about our own
code; what the libraries do with bytes is `test_hostile_worker.py`'s question.
"""

from __future__ import annotations

import ast
import builtins
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kforge

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(kforge.__file__).parent
MODULES = {
    path.relative_to(PACKAGE).as_posix(): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if "example" not in path.relative_to(PACKAGE).parts  # text for a prompt and for the doctor
}

FORBIDDEN = frozenset(
    {
        # data that becomes code or any object its sender likes
        "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "jsonpickle", "marshal", "shelve", "copyreg",
        "multiprocessing", "concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process", "xmlrpc", "yaml",
        "logging.config",
        "torch.load", "torch.jit.load", "torch.package", "torch.serialization", "torch.export.load", "torch.hub",
        "torch.multiprocessing", "torch.distributed",
        "numpy.load", "numpy.core", "numpy.lib.format", "pandas.read_pickle",
        # text that becomes code
        "builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__", "code", "codeop", "runpy", "imp",
        "importlib.import_module", "importlib.util.spec_from_file_location", "types.FunctionType", "types.CodeType",
        "jinja2.Template", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty",
        # numbers that become addresses
        "ctypes.cast", "ctypes.string_at", "ctypes.wstring_at", "ctypes.memmove", "ctypes.memset", "ctypes.py_object",
        "ctypes.pythonapi", "ctypes.CFUNCTYPE", "ctypes.PYFUNCTYPE", "ctypes.POINTER", "ctypes.pointer", "cffi",
    }
)  # fmt: skip
METHODS = frozenset({"from_address", "from_buffer", "from_buffer_copy", "from_param", "from_string", "__reduce_ex__"})
"""Of any object: ctypes makes a value of raw memory by the first ones, jinja2 a template of text by `from_string`."""

ALLOWED = {
    ("evaluation/worker/main.py", "builtins.exec"): "the untrusted process: this is what it is for",
    ("evaluation/worker/main.py", "builtins.compile"): "the untrusted process: this is what it is for",
    ("problems/instance.py", "builtins.exec"): "the problem is the user's own code",
    (
        "export/writing.py",
        "builtins.compile",
    ): "an exported file is compiled to see whether it is valid; nothing runs it",
    ("problems/instance.py", "builtins.compile"): "the problem is the user's own code",
    (
        "drop_in/program.py",
        "builtins.exec",
    ): "hands a verified program to the user who asked for it, on the user's word",
    (
        "drop_in/program.py",
        "builtins.compile",
    ): "hands a verified program to the user who asked for it, on the user's word",
    ("drop_in/module.py", "pickle"): "only writes: tries whether the caller's own module can be pickled",
    ("problems/readers/files.py", "yaml"): "only yaml.safe_load, which makes plain values and no other objects",
    ("platforms/registry.py", "importlib.util.spec_from_file_location"): "adapters are code that the user installed",
    ("inline/shared_objects.py", "ctypes.cast"): "asks the loader where a function of torch's own library lies",
    **{
        (
            "inline/metal/library.py",
            f"ctypes.{name}",
        ): "in the worker: calls the program's own kernels, and no referee does"
        for name in ("cast", "POINTER", "memset", "memmove")
    },
    ("inline/sycl/launcher.py", "ctypes.POINTER"): "declares arguments, and reads no memory by an address",
    ("inline/opencl/library.py", "from_address"): "in the worker: shows the program's own tensors to its device",
    ("platforms/pallas/ahead.py", "runpy"): "builds the platform's own example, in a process of its own",
    ("smith/languages/simt/__init__.py", "importlib.import_module"): "a dialect, by a name of our own folder",
    ("platforms/triton/ahead.py", "runpy"): "builds the platform's own example, in a process of its own",
}


def uses(tree: ast.Module) -> Iterator[str]:
    """The forbidden names that code uses, however it imported them; and forbidden ways to call what is allowed."""
    names = dict(imported(tree))
    safe = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and is_weights_only(node)}
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and node not in inner:
            dotted = resolve(node, names)
            if dotted is not None and not (dotted == "torch.load" and node in safe):
                yield from offending(dotted)
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.attr
        if isinstance(node, ast.Call):
            yield from odd_calls(node, names)
    yield from (found for dotted in names.values() for found in offending(dotted) if found != "torch.load")


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    top = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (top, top)
                    yield f"import {alias.name}", alias.name
            case ast.ImportFrom(module=str(module), names=aliases):
                for alias in aliases:
                    yield alias.asname or alias.name, f"{module}.{alias.name}"


def resolve(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Attribute):
        head = resolve(node.value, names)
        return None if head is None else f"{head}.{node.attr}"
    if isinstance(node, ast.Name):
        return names.get(node.id, f"builtins.{node.id}" if hasattr(builtins, node.id) else None)
    return None


def offending(dotted: str) -> list[str]:
    """`pickle.loads` offends because `pickle` does."""
    parts = dotted.split(".")
    starts = {".".join(parts[: count + 1]) for count in range(len(parts))}
    return sorted(starts & FORBIDDEN)


def odd_calls(call: ast.Call, names: dict[str, str]) -> Iterator[str]:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    for word in ("allow_pickle", "shell"):
        if word in given and not (isinstance(given[word], ast.Constant) and given[word].value is False):  # type: ignore[attr-defined]
            yield word
    match call:
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]):
            head = resolve(owner, names)
            yield from offending(f"{head}.{name}") if head else ()


def is_weights_only(call: ast.Call) -> bool:
    return any(
        keyword.arg == "weights_only" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in call.keywords
    )


@cache
def used_in(name: str) -> frozenset[str]:
    return frozenset(uses(ast.parse(MODULES[name].read_text(encoding="utf-8"), filename=name)))


def test_no_module_can_make_code_or_objects_of_data() -> None:
    assert MODULES
    assert [(name, use) for name in MODULES for use in used_in(name) if (name, use) not in ALLOWED] == []


@pytest.mark.parametrize(("name", "use"), ALLOWED)
def test_every_exception_is_still_needed(name: str, use: str) -> None:
    assert use in used_in(name)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("import pickle\nvalue = pickle.loads(frame)", "pickle"),
        ("import pickle as p", "pickle"),
        ("from pickle import loads as read", "pickle"),
        ("def f():\n    from marshal import loads", "marshal"),
        ("import torch\ntorch.load(file)", "torch.load"),
        ("import torch\ntorch.load(file, weights_only=False)", "torch.load"),
        ("import torch\nread = torch.load", "torch.load"),
        ("from torch import load\nload(file)", "torch.load"),
        ("import torch.jit\ntorch.jit.load(file)", "torch.jit.load"),
        ("import torch\ngetattr(torch, 'load')(file)", "torch.load"),
        ("eval(frame.text)", "builtins.eval"),
        ("exec(compile(text, 'x', 'exec'))", "builtins.compile"),
        ("run = exec", "builtins.exec"),
        ("import builtins\nbuiltins.eval(text)", "builtins.eval"),
        ("import yaml\nyaml.load(text)", "yaml"),
        ("import numpy as np\nnp.load(file, allow_pickle=True)", "allow_pickle"),
        ("import numpy as np\nnp.load(file)", "numpy.load"),
        ("from multiprocessing.connection import Client", "multiprocessing"),
        ("import ctypes\nctypes.cast(address, kind)", "ctypes.cast"),
        ("from ctypes import string_at", "ctypes.string_at"),
        ("import ctypes\nctypes.c_float.from_address(ref.offset)", "from_address"),
        ("subprocess.run(frame.command, shell=True)", "shell"),
        ("environment.from_string(reply)", "from_string"),
        ("import importlib\nimportlib.import_module(frame.name)", "importlib.import_module"),
    ],
)
def test_a_planted_use_is_found(planted: str, found: str) -> None:
    assert found in set(uses(ast.parse(planted)))
    for name in (
        "evaluation/transport/wire.py",
        "evaluation/worker_client/client.py",
        "evaluation/judge.py",
        "records/evidence.py",
    ):
        assert found not in used_in(name)
        before = MODULES[name].read_text(encoding="utf-8")
        assert found in set(uses(ast.parse(f"{before}\n{planted}\n")))


@pytest.mark.parametrize(
    "fair",
    [
        "import torch\ntorch.load(file, weights_only=True)",
        "import torch\ntorch.compile(model)",
        "from kforge import inline\ninline.compile(source)",
        "import re\nre.compile(pattern)",
        "import json\njson.loads(text)",
        "import ast\nast.literal_eval(text)",
        "model.eval()",
        "self.load(order)",
        "subprocess.run(command, shell=False)",
    ],
)
def test_the_rule_is_fair(fair: str) -> None:
    assert set(uses(ast.parse(fair))) == set()

"""Stand-ins for torch's headers: what one inline extension mentions, instead of everything there is.

Parsing <torch/extension.h> and <torch/types.h> is nearly all of such a build. `include/` beside this file has files of
those names that declare tensors and little else; here is decided whether they can do for a program's sources, and the
rest is written for them: the operators that the sources mention, and torch's own files without their heaviest includes.

It is a guess. One that lacks a declaration does not compile, and whoever builds must then use torch's headers; one that
compiles calls the same functions of the same libraries. Two things would compile and mean something else, and get no
guess: `torch::tensor`, and tensors made to require a gradient, which namespace `torch` has its own ways of.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

INCLUDE = Path(__file__).parent / "include"

_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([\w/.+-]+)[>"]', re.MULTILINE)
_REPLACED = frozenset(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.h")) | {"torch/types.h"}
_LIGHT = _REPLACED.union(["torch/library.h"], _INCLUDED.findall((INCLUDE / "torch/all.h").read_text()))
"""Files of torch's C++ frontend that can be had without the rest of it; <ATen/…> and <c10/…> can all be."""

_NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bR"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""",
    re.DOTALL,
)
_BEYOND = re.compile(
    r"\b(?:torch|at)\s*::\s*"
    r"(?:autograd|data|fft|jit|linalg|native|nested|nn|optim|python|serialize|sparse|special|symint|load|save)\b"
    r"|\b\w*requires_grad\w*\b|\bTHP\w+|\btensor\s*[({<]"
)
"""Needs torch's own headers, or means something else without them."""

_OPERATOR = re.compile(r"<ATen/ops/(\w+)\.h>")
_OPERATED = ("ATen/ExpandUtils.h", "ATen/ScalarOps.h", "ATen/TensorIndexing.h", "ATen/TensorOperators.h")
"""Files of torch that bring in operators themselves."""
_PYTHON = re.compile(r"\bpy\s*::|\bpybind11\b|\bPYBIND11_\w+|\bPy[A-Z_]\w*")
_FURTHER = {
    "ATen/Context.h": re.compile(r"\bglobalContext\b|\bmanual_seed\b"),
    "ATen/DeviceGuard.h": re.compile(r"\b(?:Optional)?DeviceGuard\b|\bdevice_of\b"),
    "ATen/ScalarOps.h": re.compile(r"\bscalar_to_tensor\b|\bwrapped_scalar_tensor\b"),
    "ATen/TensorIndexing.h": re.compile(r"[.>]\s*index(?:_put_)?\s*\(|\bindexing\b|\bTensorIndex\b"),
    "torch/library.h": re.compile(r"\bTORCH_LIBRARY|\bIValue\b"),
}
"""Too heavy for those who do not mention what they declare."""

_HEAVY = re.compile(
    r"^#include <(?:ATen/(?:Context|DeviceGuard|TensorUtils|TracerMode)"
    r"|torch/(?:library|csrc/autograd/variable))\.h>\n",
    re.MULTILINE,
)
"""Included by torch's file of each operator, which needs none of them, and by its <torch/types.h>."""

_FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"
_FACTORY = re.compile(r"^inline at::Tensor (\w+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"^using .*;$", re.MULTILINE)
_MADE_VARIABLE = re.compile(r"\bautograd::make_variable\((.*), [^,]*\brequires_grad\(\)\)")


def written_for(sources: Sequence[Path], headers: Path, folder: Path) -> list[Path] | None:
    """Where a compiler is to look before torch's own `headers`, or None where only those will do.

    Files are written into `folder`, and those already there stay untouched: whoever builds looks at their age. Inline
    sources lie beside it; a file from elsewhere may include others that nobody looks at here.
    """
    if any(source.parent != folder.parent for source in sources):
        return None
    texts = {source.suffix: source.read_text() for source in sources}
    if len(texts) < len(sources) or not texts.keys() <= {".cpp", ".cu"} or not can_do_for([*texts.values()]):
        return None
    light = {name for header in _OPERATED for name in _OPERATOR.findall((headers / header).read_text())}
    for suffix in (".cpp", ".cu"):
        code = code_of(texts.get(suffix, ""))
        further = [name for name, pattern in _FURTHER.items() if pattern.search(code)]
        mentioned = operators_in(code, headers)
        lines = [f"#include <{name}>" for name in [*further, *(f"ATen/ops/{name}.h" for name in sorted(mentioned))]]
        if _PYTHON.search(code):
            lines.append("#define KFORGE_MENTIONS_PYTHON")
        _write(folder / f"kforge/mentioned_{suffix[1:]}.h", "\n".join(lines) + "\n")
        light |= mentioned
    for name in light:
        _write(folder / f"ATen/ops/{name}.h", _lighter(headers / f"ATen/ops/{name}.h"))
    _write(folder / _FACTORIES, _factories((headers / _FACTORIES).read_text(), light))
    _write(folder / "torch/types.h", _lighter(headers / "torch/csrc/api/include/torch/types.h"))
    return [folder, INCLUDE]


def can_do_for(texts: Collection[str]) -> bool:
    """Whether these sources include what is replaced here, and need nothing that only torch's own files have."""
    included = {name for text in texts for name in _INCLUDED.findall(text)}
    frontend = {name for name in included if name.startswith("torch/")}
    return bool(included & _REPLACED) and frontend <= _LIGHT and not any(_BEYOND.search(code_of(t)) for t in texts)


def code_of(text: str) -> str:
    """C++ without its comments and literals, which speak of tensors in words of their own."""
    return _NOT_CODE.sub(" ", text)


def operators_in(code: str, headers: Path) -> set[str]:
    """The names in this code that torch has a file of declarations for, `at::max_out` and `at::relu_` among them.

    Any name, not only one after `torch::` or `at::`: a function of a tensor is found by its argument's namespace, too.
    """
    names = {re.sub(r"(?:_outf?|_)$", "", name) for name in re.findall(r"\b[A-Za-z_]\w*", code)}
    return {name for name in names - {"tensor"} if (headers / f"ATen/ops/{name}.h").is_file()}


def _factories(text: str, mentioned: set[str]) -> str:
    """Of torch's `torch::empty` and its like those mentioned: they skip a layer that `at::empty` passes.

    What they do about gradients needs all of autograd, and is nothing where no source says `requires_grad`.
    """
    found = [match for match in _FACTORY.finditer(text) if match[1] in mentioned]
    lines = ["#pragma once", "#pragma GCC system_header", "#include <ATen/TracerMode.h>"]
    lines += ["#include <ATen/core/LegacyTypeDispatch.h>"]
    lines += [f"#include <ATen/ops/{name}.h>" for name in sorted({match[1] for match in found})]
    functions = [_MADE_VARIABLE.sub(r"\1", match[0]) for match in found]
    return "\n".join([*lines, "namespace torch {", *_NAMES.findall(text), *functions, "}", ""])


def _lighter(header: Path) -> str:
    # torch's folders are the system's to a compiler, and their warnings nobody's; so it must be with a copy
    return "#pragma GCC system_header\n" + _HEAVY.sub("", header.read_text())


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

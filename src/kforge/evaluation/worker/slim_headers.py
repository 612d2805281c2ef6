"""Writes small replacements for torch's C++ headers, with only what one inline extension uses.

Parsing <torch/extension.h> and <torch/types.h> takes nearly all of the time of a build. The folder `include/` has files
of those names that declare tensors and little else. This module decides whether they are enough for a program's
sources. It writes files with the operators that the sources use, and copies of torch's files without their heaviest
includes.

The decision may be wrong. If a declaration is missing, the source does not compile, and the build is repeated with
torch's headers. If it compiles, it calls the same functions of the same libraries. Two things would compile with
another meaning, and are never tried: `torch::tensor`, and tensors that require a gradient.
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
"""Headers that have a small replacement."""
_LIGHT = _REPLACED.union(["torch/library.h"], _INCLUDED.findall((INCLUDE / "torch/all.h").read_text()))
"""Headers of torch's C++ frontend that can be included without the rest of it. All of <ATen/…> and <c10/…> can, too."""

_NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\bR"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""",
    re.DOTALL,
)
"""Matches comments and literals of C++."""
_BEYOND = re.compile(
    r"\b(?:torch|at)\s*::\s*"
    r"(?:autograd|data|fft|jit|linalg|native|nested|nn|optim|python|serialize|sparse|special|symint|load|save)\b"
    r"|\b\w*requires_grad\w*\b|\bTHP\w+|\btensor\s*[({<]"
)
"""Matches code that needs torch's own headers, or that has another meaning without them."""

_OPERATOR = re.compile(r"<ATen/ops/(\w+)\.h>")
_OPERATED = ("ATen/ExpandUtils.h", "ATen/ScalarOps.h", "ATen/TensorIndexing.h", "ATen/TensorOperators.h")
"""Headers of torch that use operators themselves, and so need their declarations."""
_PYTHON = re.compile(r"\bpy\s*::|\bpybind11\b|\bPYBIND11_\w+|\bPy[A-Z_]\w*")
_FURTHER = {
    "ATen/Context.h": re.compile(r"\bglobalContext\b|\bmanual_seed\b"),
    "ATen/DeviceGuard.h": re.compile(r"\b(?:Optional)?DeviceGuard\b|\bdevice_of\b"),
    "ATen/ScalarOps.h": re.compile(r"\bscalar_to_tensor\b|\bwrapped_scalar_tensor\b"),
    "ATen/TensorIndexing.h": re.compile(r"[.>]\s*index(?:_put_)?\s*\(|\bindexing\b|\bTensorIndex\b"),
    "torch/library.h": re.compile(r"\bTORCH_LIBRARY|\bIValue\b"),
}
"""Heavy headers, each included only if the code uses a name that it declares."""

_HEAVY = re.compile(
    r"^#include <(?:ATen/(?:Context|DeviceGuard|TensorUtils|TracerMode)"
    r"|torch/(?:library|csrc/autograd/variable))\.h>\n",
    re.MULTILINE,
)
"""Matches includes that each operator's header and <torch/types.h> have, but do not need."""

_FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"
_FACTORY = re.compile(r"^inline at::Tensor (\w+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"^using .*;$", re.MULTILINE)
_MADE_VARIABLE = re.compile(r"\bautograd::make_variable\((.*), [^,]*\brequires_grad\(\)\)")


def written_for(sources: Sequence[Path], headers: Path, folder: Path) -> list[Path] | None:
    """Write the headers for these sources into `folder`. Returns the include folders to put before torch's own
    `headers`.

    Returns None if only torch's own headers will do, for example because a source lies elsewhere and may include files
    that are not examined here. Unchanged files are not written again, because builds compare modification times.
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
    """Return whether these sources include a replaced header, and use nothing that only torch's own headers have."""
    included = {name for text in texts for name in _INCLUDED.findall(text)}
    frontend = {name for name in included if name.startswith("torch/")}
    return bool(included & _REPLACED) and frontend <= _LIGHT and not any(_BEYOND.search(code_of(t)) for t in texts)


def code_of(text: str) -> str:
    """Return C++ code without comments and literals."""
    return _NOT_CODE.sub(" ", text)


def operators_in(code: str, headers: Path) -> set[str]:
    """Return the names in this code that have a header in torch's ATen/ops, such as `max` for `at::max_out`.

    Any name counts, also without `torch::` or `at::`, because C++ finds a function by the namespace of its arguments.
    """
    names = {re.sub(r"(?:_outf?|_)$", "", name) for name in re.findall(r"\b[A-Za-z_]\w*", code)}
    return {name for name in names - {"tensor"} if (headers / f"ATen/ops/{name}.h").is_file()}


def _factories(text: str, mentioned: set[str]) -> str:
    """Return a header with the used factory functions such as `torch::empty`, without their handling of gradients.

    That handling needs all of autograd, and has no effect unless a source uses `requires_grad`.
    """
    found = [match for match in _FACTORY.finditer(text) if match[1] in mentioned]
    lines = ["#pragma once", "#pragma GCC system_header", "#include <ATen/TracerMode.h>"]
    lines += ["#include <ATen/core/LegacyTypeDispatch.h>"]
    lines += [f"#include <ATen/ops/{name}.h>" for name in sorted({match[1] for match in found})]
    functions = [_MADE_VARIABLE.sub(r"\1", match[0]) for match in found]
    return "\n".join([*lines, "namespace torch {", *_NAMES.findall(text), *functions, "}", ""])


def _lighter(header: Path) -> str:
    """Return the text of a header without its heaviest includes."""
    # a compiler treats torch's folders as the system's and hides their warnings; a copy must be treated alike
    return "#pragma GCC system_header\n" + _HEAVY.sub("", header.read_text())


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

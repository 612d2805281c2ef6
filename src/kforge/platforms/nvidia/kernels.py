"""Decides by a kernel's name whether the program or a library wrote it. The program's own kernels are those that its
source defines.

Names are read from the program's text: from C++ in strings, and from functions that a decorator named `jit` compiles. A
kernel whose name is computed at build time is not found there, and counts as a library's. A program could define an
empty kernel under a library's name, so names that libraries use always count as theirs.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from kforge.inline.cuda import declarations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kforge.platforms.kernels import KernelOwner

LIBRARIES = ("at", "c10", "at_cuda_detail", "cub", "thrust", "cublas", "cublasLt", "cudnn", "cask")
"""Namespaces of torch and of the libraries that it calls. Kernels in them are never the program's own."""
GENERATIONS = "maxwell|volta|turing|ampere|hopper|blackwell"
"""Pattern of the GPU generations with which the names of some library kernels begin. The size of a tile follows in such
a name."""

_TEMPLATES = ("cutlass", "pytorch_flash", "internal::gemvx")
"""Namespaces of header-only libraries. Kernels that a program builds from them count as the library's."""
_NAMESPACE = re.compile(rf"(?:{'|'.join((*LIBRARIES, *_TEMPLATES))})::")
_FAMILY = re.compile(
    rf"""
      sm\d+_xmma_ | cutlass_\d+_ | cutlass_tensorop_ | nvjet_ | fmha_(?:cutlass|v\d) | nccl(?:Dev)?Kernel
    | (?:{GENERATIONS})_\w*(?:gemm|cudnn)\w*_\d+x\d+
    | [a-z]?gemm(?:_largek_|k1_kernel|SN_[NT]) | gemv(?:2[NT]|NSP|Np)_kernel
    | splitKreduce_kernel | reduce_1Block_kernel | convolveNd_ | (?:im|ex)plicit_convolve_ | [dw]grad_alg\d
    """,
    re.VERBOSE,
)
_OF_A_LIBRARY = re.compile(r"\b(?:cublas|cudnn|twiddle_t\b)")
"""Pattern of parameter types that only kernels of cuBLAS, cuDNN and cuFFT have."""
_COPY = re.compile(r"Mem(?:cpy \w+|set) \(")
_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\})::")
_LENGTH = re.compile(r"\d+")


def owners(program: str) -> Callable[[str], KernelOwner]:
    """Return a function that gives the author of a kernel, by the name that a profiler gives the kernel. The program
    must be valid Python."""
    own = frozenset(authored(program))

    def owner(kernel: str) -> KernelOwner:
        if _COPY.match(kernel):
            return "copy"
        name = plain_name(kernel)
        if _NAMESPACE.match(name) or _FAMILY.match(name) or _OF_A_LIBRARY.search(kernel):
            return "library"
        return "authored" if name in own else "library"

    return owner


def authored(program: str) -> Iterator[str]:
    """Yield the qualified names of the kernels that a program's text defines."""
    for node in ast.walk(ast.parse(program)):
        match node:
            case ast.Constant(value=str(text)):
                yield from _in_text(text)
            case ast.FunctionDef(name=name, decorator_list=decorators) if any(map(_is_jit, decorators)):
                yield name
            case ast.Call(func=function, args=[ast.Name(id=name), *_]) if _is_jit(function):
                yield name


def plain_name(kernel: str) -> str:
    """Return the kernel's qualified name without arguments: `ours::scale` for `void ours::scale<float, 4>(float const*,
    int)` and for `_ZN4ours5scaleIfLi4EEEvPKfi`."""
    if kernel.startswith("_Z"):
        return "::".join(_mangled(kernel[2:].lstrip("NKL"))) or kernel
    words = _without_arguments(_UNNAMED.sub("", kernel)).split()  # a template's name is preceded by its return type
    return words[-1] if words else kernel


def _without_arguments(name: str) -> str:
    """Return the name without its parameters and without template arguments, also those of its namespaces."""
    kept, depth = "", 0
    for letter in name.replace("->", ""):
        if letter == "(" and not depth:
            break
        depth += letter == "<"
        kept += letter if not depth else ""
        depth -= letter == ">"
    return kept


def _mangled(rest: str) -> Iterator[str]:
    while length := _LENGTH.match(rest):
        end = length.end() + int(length[0])
        name = rest[length.end() : end]
        if not name.startswith(("_GLOBAL__N_", "_INTERNAL_")):  # an anonymous namespace
            yield name
        rest = rest[end:]


def _in_text(text: str) -> Iterator[str]:
    if "__global__" in text:
        yield from (one.expression for one in declarations.parse(text).values())
    if "jit" in text and "def " in text:  # Python source in a string, which the program executes
        with suppress(SyntaxError, ValueError, RecursionError):
            yield from authored(text)


def _is_jit(decorator: ast.expr) -> bool:
    """Return whether the expression is `jit`, `triton.jit` or `triton.jit(...)`."""
    match decorator:
        case ast.Call(func=function):
            return _is_jit(function)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "jit"
    return False

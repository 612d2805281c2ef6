"""Compiles C++ and calls it through the plain C ABI. A build reads no header of Python or torch, so that it takes only
0.1 to 0.2 s."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kforge.inline import cache as builds
from kforge.inline import configuration, diagnostics, headers, openmp, signature, steps
from kforge.inline.errors import CompileError, ToolchainError
from kforge.inline.library import Kernel, Library

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPILERS = ("g++", "c++", "clang++")
"""Compilers that are searched on PATH, in this order. g++ is first because its code runs with the libgomp of torch's
wheels."""

_APPLE = sys.platform == "darwin"
"""Whether the compiler is Apple's clang, which is also called g++ there."""


def compile_flags(*, apple: bool) -> tuple[str, ...]:
    """Return the flags of every build. Apple's compiler takes OpenMP only behind -Xpreprocessor, and no -march=native.

    The last two flags change no result. Kernels use neither `errno` nor floating-point exception flags; a compiler that
    must keep them does not vectorize loops with a square root or a condition.
    """
    native, threads = ("-mcpu=native", ("-Xpreprocessor", "-fopenmp")) if apple else ("-march=native", ("-fopenmp",))
    return ("-O3", native, *threads, "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math")


FLAGS = compile_flags(apple=_APPLE)
_DIAGNOSTICS = ("-ferror-limit=20" if _APPLE else "-fmax-errors=20", "-fdiagnostics-color=never")
_LINKER_PREFIXES = ("-l", "-L", "-Wl,")
_BOTH_STEPS = "-fsanitize"
SOURCE = "kernel.cpp"
"""The name of the source in compiler messages."""
_OBJECT, _LIBRARY = "kernel.o", "kernel.so"


class Built(NamedTuple):
    """A library that this process has loaded, with what a tool needs to compile its source again (see `report`)."""

    source: str
    flags: tuple[str, ...]
    path: Path
    clang: bool


_built: dict[Path, Built] = {}


def built() -> tuple[Built, ...]:
    """Return the libraries that this process has built or taken from the cache, oldest first."""
    return tuple(_built.values())


def report(one: Built, flags: Sequence[str]) -> str:
    """Compile a library's source again with additional flags, and return the compiler's messages. The object file is
    deleted. Raises CompileError and ToolchainError."""
    with tempfile.TemporaryDirectory(prefix="report-") as place:
        folder = Path(place)
        (folder / SOURCE).write_text(one.source, encoding="utf-8")
        command = [find_compiler(), *FLAGS, f"-I{headers.FOLDER}", *_compile_only(one.flags), *flags]
        return _run([*command, "-c", SOURCE, "-o", _OBJECT], folder)


def build(source: str, flags: tuple[str, ...]) -> Library:
    """Return the library built from this source, from the cache if possible.

    Raises CompileError if the source does not compile or has no kernel that can be called, and ToolchainError if this
    machine has no C++ compiler or no writable cache.
    """
    compiler = find_compiler()
    runtime = openmp.torch_runtime()
    settings = configuration.current()
    flags = (*flags, *settings.flags)
    target = _target(compiler, flags)
    name = builds.key((source, "\0".join(flags), target, str(runtime), headers.included(source)))
    make = partial(_build, compiler, source, flags, runtime, target)
    path = builds.fetch(settings.cache_folder, f"{name}.so", make)
    _built[path] = Built(source, flags, path, clang="clang version" in target)
    signatures = signature.parse(source)
    try:
        native = ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"the built library cannot be loaded: {error}") from error
    # A declaration of a foreign function, or one that the preprocessor removed, has no symbol here.
    present = {name: one for name, one in signatures.items() if hasattr(native, name)}
    return Library({name: Kernel(native[name], one) for name, one in present.items()}, (build, (source, flags)))


def preloadable(source: str) -> Path:
    """Build a library for LD_PRELOAD, which needs only the C library, and return its path. Raises CompileError and
    ToolchainError."""
    compiler = find_compiler()

    def make(place: Path) -> Path:
        (place / SOURCE).write_text(source, encoding="utf-8")
        _run([compiler, "-O2", "-fPIC", "-shared", "-Wl,--as-needed", SOURCE, "-o", _LIBRARY], place)
        return place / _LIBRARY

    name = builds.key((source, _target(compiler, ())))
    return builds.fetch(configuration.current().cache_folder, f"{name}.so", make).resolve()


def find_compiler() -> str:
    """Return the path of the C++ compiler. Raises ToolchainError if there is none."""
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise ToolchainError(f"no C++ compiler found (looked for {', '.join(COMPILERS)}); install g++")


@cache
def _target(compiler: str, flags: tuple[str, ...]) -> str:
    """Return a text that identifies the compiler's version and the processor that `native` stands for. It is part of
    the cache key."""
    command = [
        compiler,
        "-v",
        "-###",
        *FLAGS,
        *_compile_only(flags),
        "-S",
        "-x",
        "c++",
        "/dev/null",
        "-o",
        "/dev/null",
    ]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{compiler} does not answer: {error}") from error
    return answer.stderr


def _build(compiler: str, source: str, flags: tuple[str, ...], runtime: Path | None, target: str, place: Path) -> Path:
    (place / SOURCE).write_text(source, encoding="utf-8")
    # Compiling and linking are two steps. In one step the compiler would link the system's OpenMP runtime beside
    # torch's, and before GCC 13 -ffast-math would add start-up code that flushes denormals in the whole process.
    _run(
        [compiler, *FLAGS, *_DIAGNOSTICS, f"-I{headers.FOLDER}", *_compile_only(flags), "-c", SOURCE, "-o", _OBJECT],
        place,
    )
    libraries = [flag for flag in flags if flag.startswith((*_LINKER_PREFIXES, _BOTH_STEPS))]
    # clang calls another OpenMP runtime (__kmpc_*), which libgomp does not offer, so clang links its own.
    foreign = runtime is not None and "clang version" in target and "gomp" in runtime.name
    _run([compiler, *link_flags(None if foreign else runtime, apple=_APPLE), *libraries], place)
    return place / _LIBRARY


def link_flags(runtime: Path | None, *, apple: bool) -> list[str]:
    """Return the arguments of the link step. `runtime` is the OpenMP library to link; None means the compiler's own.

    Undefined symbols must fail here, with the linker's message, and not when the library is loaded. Apple's linker does
    so by default.
    """
    how = ["-dynamiclib"] if apple else ["-shared", "-Wl,-z,defs"]
    own = "-lomp" if apple else "-fopenmp"
    return [*how, _OBJECT, "-o", _LIBRARY, own if runtime is None else str(runtime)]


def _compile_only(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith(_LINKER_PREFIXES)]


def _run(command: list[str], place: Path) -> str:
    """Run one step in the build's folder, so that messages contain the short name `kernel.cpp`. Returns its output.
    Raises CompileError if the step fails."""
    status, log = steps.run(command, place)
    if status != 0:
        raise CompileError(diagnostics.trim(log) or f"the compiler failed with status {status}", log)
    return log

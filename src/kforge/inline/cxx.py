"""C++ through the plain C ABI: no Python or torch header is read, so a build takes a tenth of a second or two."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from functools import cache, partial
from typing import TYPE_CHECKING

from kforge.inline import cache as builds
from kforge.inline import configuration, diagnostics, openmp, signature, steps
from kforge.inline.errors import CompileError, ToolchainError
from kforge.inline.library import Kernel, Library

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COMPILERS = ("g++", "c++", "clang++")
"""Looked for on PATH in this order; g++ comes first because its code runs on the libgomp in torch's wheels."""

_APPLE = sys.platform == "darwin"
"""Whether the compiler is Apple's clang, also under the name g++."""


def compile_flags(*, apple: bool) -> tuple[str, ...]:
    """Return the flags of every build. Apple's driver takes OpenMP only behind -Xpreprocessor, and no -march=native.

    The last two change no value. Kernels use neither `errno` nor the processor's exception flags, and a compiler that
    must keep them does not vectorize a loop with a square root or a condition in it.
    """
    native, threads = ("-mcpu=native", ("-Xpreprocessor", "-fopenmp")) if apple else ("-march=native", ("-fopenmp",))
    return ("-O3", native, *threads, "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math")


FLAGS = compile_flags(apple=_APPLE)
_DIAGNOSTICS = ("-ferror-limit=20" if _APPLE else "-fmax-errors=20", "-fdiagnostics-color=never")
_LINKER_PREFIXES = ("-l", "-L", "-Wl,")
_BOTH_STEPS = "-fsanitize"
SOURCE = "kernel.cpp"
"""The name of a source string in compiler messages."""
_OBJECT, _LIBRARY = "kernel.o", "kernel.so"


def build(source: str, flags: tuple[str, ...]) -> Library:
    """Compile the source, or take it from the cache, and load it.

    Raises CompileError when the source does not build or has no kernel that can be called, ToolchainError when
    this machine has no C++ compiler or no writable cache.
    """
    compiler = find_compiler()
    runtime = openmp.torch_runtime()
    settings = configuration.current()
    flags = (*flags, *settings.flags)
    target = _target(compiler, flags)
    name = builds.key((source, "\0".join(flags), target, str(runtime)))
    make = partial(_build, compiler, source, flags, runtime, target)
    path = builds.fetch(settings.cache_folder, f"{name}.so", make)
    signatures = signature.parse(source)
    try:
        native = ctypes.CDLL(str(path))
    except OSError as error:
        raise CompileError(f"the built library does not load: {error}") from error
    # A declaration of a foreign function, or one that the preprocessor removed, has no symbol here.
    present = {name: one for name, one in signatures.items() if hasattr(native, name)}
    return Library({name: Kernel(native[name], one) for name, one in present.items()}, (build, (source, flags)))


def preloadable(source: str) -> Path:
    """Build a library that needs only the C library, for LD_PRELOAD. Raises CompileError and ToolchainError."""
    compiler = find_compiler()

    def make(place: Path) -> Path:
        (place / SOURCE).write_text(source, encoding="utf-8")
        _run([compiler, "-O2", "-fPIC", "-shared", "-Wl,--as-needed", SOURCE, "-o", _LIBRARY], place)
        return place / _LIBRARY

    name = builds.key((source, _target(compiler, ())))
    return builds.fetch(configuration.current().cache_folder, f"{name}.so", make).resolve()


def find_compiler() -> str:
    """The C++ compiler that builds kernels here. Raises ToolchainError where there is none."""
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise ToolchainError(f"no C++ compiler found (looked for {', '.join(COMPILERS)}); install g++")


@cache
def _target(compiler: str, flags: tuple[str, ...]) -> str:
    """Return the compiler's version, and what `native` means on this processor."""
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
    # Two steps, because the driver's own link step would add the system's OpenMP runtime beside torch's, and,
    # before GCC 13, turn -ffast-math into start-up code that flushes denormals in the whole process.
    _run([compiler, *FLAGS, *_DIAGNOSTICS, *_compile_only(flags), "-c", SOURCE, "-o", _OBJECT], place)
    libraries = [flag for flag in flags if flag.startswith((*_LINKER_PREFIXES, _BOTH_STEPS))]
    # clang calls another OpenMP runtime (__kmpc_*), which libgomp does not offer, so clang links its own.
    foreign = runtime is not None and "clang version" in target and "gomp" in runtime.name
    _run([compiler, *link_flags(None if foreign else runtime, apple=_APPLE), *libraries], place)
    return place / _LIBRARY


def link_flags(runtime: Path | None, *, apple: bool) -> list[str]:
    """Return the arguments of the link step. `runtime`: the OpenMP library to link; None: the compiler's own.

    Undefined symbols fail here with the linker's message, and not when the library is loaded: Apple's linker does so
    without being told.
    """
    how = ["-dynamiclib"] if apple else ["-shared", "-Wl,-z,defs"]
    own = "-lomp" if apple else "-fopenmp"
    return [*how, _OBJECT, "-o", _LIBRARY, own if runtime is None else str(runtime)]


def _compile_only(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith(_LINKER_PREFIXES)]


def _run(command: list[str], place: Path) -> None:
    """Run one step in the build's folder, so that messages say `kernel.cpp`."""
    status, log = steps.run(command, place)
    if status != 0:
        raise CompileError(diagnostics.trim(log) or f"the compiler failed with status {status}", log)

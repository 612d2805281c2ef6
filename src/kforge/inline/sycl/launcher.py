"""Compiles `launcher.cpp` against SYCL's headers, and loads it. Its functions are called through ctypes."""

from __future__ import annotations

import ctypes
from importlib import resources
from typing import TYPE_CHECKING, Any

from kforge.inline import cache as builds
from kforge.inline import configuration, cxx, diagnostics, steps
from kforge.inline.errors import ToolchainError
from kforge.inline.sycl import packages

if TYPE_CHECKING:
    from pathlib import Path

_SOURCE, _LIBRARY = "launcher.cpp", "launcher.so"
_FLAGS = ("-std=c++17", "-O1", "-w", "-fPIC", "-shared")
"""Flags of the compiler. -O1, because the launcher only calls SYCL; -w, because the headers are not ours."""


class Facts(ctypes.Structure):
    """Properties of a device, as `kforge_open` writes them."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("driver", ctypes.c_char * 256),
        ("is_processor", ctypes.c_int32),
        ("in_host_memory", ctypes.c_int32),
        ("doubles", ctypes.c_int32),
        ("halves", ctypes.c_int32),
        ("shared_bytes", ctypes.c_uint64),
        ("group_threads", ctypes.c_uint64),
        ("group", ctypes.c_uint64 * 3),
    )


class Argument(ctypes.Structure):
    """One argument of `kforge_launch`."""

    _fields_ = (("address", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("kind", ctypes.c_int32))


SCALAR, READ, WRITTEN = 0, 1, 2
"""Kinds of arguments: a number, a tensor that is only read, and a tensor that may be written."""

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "kforge_open": (ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Facts)),
    "kforge_build": (ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)),
    "kforge_kernel": (
        ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint64),
    ),
    "kforge_launch": (
        ctypes.c_void_p, ctypes.POINTER(Argument), ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64),
    ),
}  # fmt: skip
"""Types of the parameters of the launcher's functions. Each returns null, or the text of an error."""


def load() -> Any:
    """Return the loaded launcher, compiled if the cache has none. Raises ToolchainError if the packages or the compiler
    are missing, or if the launcher cannot be compiled or loaded."""
    found = packages.find()
    path = build(found.include, found.libraries, found.version)
    try:
        native = ctypes.CDLL(str(path))
    except OSError as error:
        raise ToolchainError(f"SYCL's runtime cannot be loaded: {error}") from error
    for name, types in _FUNCTIONS.items():
        function = getattr(native, name)  # native[name] would make a new object each time
        function.argtypes, function.restype = types, ctypes.c_char_p
    return native


def build(include: Path, libraries: Path, version: str) -> Path:
    """Return the path of the compiled launcher. The arguments are those of `packages.Packages`. Raises
    ToolchainError."""
    compiler = cxx.find_compiler()
    source = (resources.files(__package__) / _SOURCE).read_text(encoding="utf-8")
    runtime = ("-L", str(libraries), "-lsycl", f"-Wl,-rpath,{libraries}")

    def make(place: Path) -> Path:
        (place / _SOURCE).write_text(source, encoding="utf-8")
        status, log = steps.run([compiler, *_FLAGS, "-I", str(include), _SOURCE, "-o", _LIBRARY, *runtime], place)
        if status:
            raise ToolchainError(f"{compiler} cannot compile SYCL's launcher: {diagnostics.trim(log)}")
        return place / _LIBRARY

    name = builds.key((source, version, compiler, *runtime, str(include)))
    return builds.fetch(configuration.current().cache_folder, f"{name}.so", make)

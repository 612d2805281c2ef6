"""Finds NVRTC and the CUDA headers: in Python's nvidia wheels, in a CUDA toolkit, or through the dynamic loader.

Wheels come first, because torch uses them: code made by NVRTC of the same release is sure to load beside torch.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.inline.errors import ToolchainError
from kforge.inline.shared_objects import origin

if TYPE_CHECKING:
    from collections.abc import Iterator

USUAL_PLACES = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
_LIBRARY = re.compile(r"libnvrtc\.so\.(?P<version>\d+(?:\.\d+)*)")
_MARKERS = ("cuda_fp16.h", "nv/target", "crt/mma.h")
"""One header each of the runtime, of CUDA's C++ library and of the compiler. Wheels may keep them in separate
folders."""
_VERSION = re.compile(rb"#define\s+CUDART_VERSION\s+(\d+)")


@dataclass(frozen=True)
class Compiler:
    """One installed NVRTC library."""

    library: Path
    version: str
    """The version, as precise as the file names state it, such as `13.0`."""

    @property
    def builtins(self) -> Path | None:
        """The library with NVRTC's built-in declarations. NVRTC opens it by its bare name, so it must be loaded first.
        None if no such file is beside NVRTC."""
        return next(iter(sorted(self.library.parent.glob("libnvrtc-builtins.so.*"))), None)

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


@cache
def compiler(newest: int | None = None) -> Compiler:
    """Return the NVRTC to use. `newest` is the newest major version whose code the driver can load.

    Raises ToolchainError if no NVRTC is installed, or only newer ones.
    """
    found = list(dict.fromkeys(_compilers()))
    fitting = [one for one in found if newest is None or one.major <= newest]
    if fitting:
        return fitting[0]
    if found:
        raise ToolchainError(
            f"NVRTC {found[0].version} is newer than the driver, which loads up to {newest}; "
            f"pip install nvidia-cuda-nvrtc-cu{newest}, or update the driver"
        )
    raise ToolchainError(
        "no NVRTC found (looked in Python's nvidia packages, CUDA_HOME, beside nvcc, in "
        f"{', '.join(USUAL_PLACES)} and by the dynamic loader); pip install nvidia-cuda-nvrtc"
    )


@cache
def include_folders(major: int) -> tuple[Path, ...]:
    """Return the folders with CUDA's headers, those of this major version first. Empty if there are none."""
    folders = [folder for folder in dict.fromkeys(_header_folders()) if any((folder / m).is_file() for m in _MARKERS)]
    folders.sort(key=lambda folder: _headers_major(folder) != major)
    return tuple(chain.from_iterable((f, f / "cccl") if (f / "cccl").is_dir() else (f,) for f in folders))


def places() -> tuple[Path, ...]:
    """Return folders that may hold parts of CUDA: Python's wheels first, then toolkits."""
    return (*_wheels(), *_toolkits())


def _compilers() -> Iterator[Compiler]:
    for folder in [*(wheel / "lib" for wheel in _wheels()), *(root / "lib64" for root in _toolkits())]:
        for file in sorted(folder.glob("libnvrtc.so.*"), key=lambda file: len(file.name), reverse=True):
            if version := _LIBRARY.fullmatch(file.name):
                yield Compiler(file, _full_version(file, version["version"]))
                break
    for name in _SONAMES:
        try:
            file_or_none = origin(ctypes.CDLL(name).nvrtcVersion)
        except (OSError, AttributeError):
            continue
        if file_or_none is not None and (version := _LIBRARY.fullmatch(file_or_none.name)):
            yield Compiler(file_or_none, _full_version(file_or_none, version["version"]))


def _full_version(library: Path, version: str) -> str:
    """Return the most precise version known. A wheel's library has only the major version in its name; the file of its
    built-in declarations has more."""
    companions = [file.name.partition(".so.")[2] for file in library.parent.glob("libnvrtc-builtins.so.*")]
    return max([version, *(one for one in companions if one.startswith(f"{version}."))], key=len)


def _wheels() -> Iterator[Path]:
    """Yield the folders of Python's nvidia wheels: `nvidia/cu13` in newer ones, `nvidia/cuda_nvrtc` and others in older
    ones."""
    spec = importlib.util.find_spec("nvidia")
    for place in () if spec is None else spec.submodule_search_locations or ():
        yield from sorted((folder for folder in Path(place).iterdir() if folder.is_dir()), reverse=True)


def _toolkits() -> Iterator[Path]:
    # These two variables are the toolkit's own convention. They are read here, because this package must also work
    # alone, beside an exported kernel.
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        yield Path(nvcc).resolve().parents[1]
    yield from map(Path, USUAL_PLACES)


def _header_folders() -> Iterator[Path]:
    for root in places():
        yield root / "include"


def _headers_major(folder: Path) -> int:
    try:
        with (folder / "cuda_runtime_api.h").open("rb") as file:
            found = _VERSION.search(file.read(1 << 16))
    except OSError:
        return 0
    return int(found[1]) // 1000 if found else 0

"""Finds the files of Intel's packages on PyPI: the headers, runtime and compiler of SYCL, and the driver for
processors."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kforge.inline.errors import ToolchainError

RUNTIME, DRIVER = "intel-sycl-rt", "intel-opencl-rt"
"""Names of the packages. The second is the driver for the host's processors; GPUs have drivers of their own."""
INSTALL = f"pip install {RUNTIME} {DRIVER}"
_PROCESSORS = ("x86_64", "amd64")
"""The names that operating systems give to x86-64, the only processor for which Intel publishes these packages."""


@dataclass(frozen=True)
class Packages:
    """Paths of the installed files."""

    version: str
    include: Path
    """Folder of the headers: `sycl/detail/core.hpp` is in it."""
    libraries: Path
    """Folder of the runtime, `libsycl.so`."""
    driver: Path | None
    """The driver for the host's processors, or None if it is not installed."""


def unsuited_machine() -> str | None:
    """Return why these packages do not exist for this machine, in one line. None if they do."""
    machine = platform.machine()
    if sys.platform == "linux" and machine.lower() in _PROCESSORS:
        return None
    return f"needs Linux on x86-64, for which Intel publishes its SYCL packages; this is {sys.platform} on {machine}"


def find() -> Packages:
    """Return the installed packages. Raises ToolchainError if they do not exist for this machine, or are missing."""
    if (reason := unsuited_machine()) is not None:
        raise ToolchainError(reason)
    header, library = _file(RUNTIME, "sycl/detail/core.hpp"), _file(RUNTIME, "libsycl.so")
    if header is None or library is None:
        raise ToolchainError(f"the Python package {RUNTIME} is not installed; install it: {INSTALL}")
    return Packages(
        importlib.metadata.version(RUNTIME), header.parents[2], library.parent, _file(DRIVER, "libintelocl.so")
    )


@cache
def _file(package: str, end: str) -> Path | None:
    """Return the path of the package's file whose path ends with `end`. None if there is no such file or package."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((Path(one.locate()) for one in files if f"/{one.as_posix()}".endswith(f"/{end}")), None)
    return found.resolve() if found is not None and found.exists() else None

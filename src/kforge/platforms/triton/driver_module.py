"""The extension module by which Triton talks to the driver, built once for all workers.

Triton builds it by the host's compiler into every cache folder that has none, and each program has a folder of its own.
Here a child of the process that workers are forked from builds it: building ends with loading it, and with it the
driver's library, which that process had better not. The file's bytes stay in memory, out of any program's reach.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 30
"""Seconds, in whole ones."""

_built: dict[Path, bytes] = {}


def begin() -> Callable[[], None]:
    """Start to build it; what this returns waits and keeps it. Where it cannot be built, there is nothing to keep."""
    folder = tempfile.mkdtemp(prefix="kforge-triton-")
    pid = os.fork()
    if not pid:
        _build(folder)

    def finish() -> None:
        os.waitpid(pid, 0)
        for file in Path(folder).rglob("*.so"):
            _built[file.relative_to(folder)] = file.read_bytes()
        shutil.rmtree(folder, ignore_errors=True)

    return finish


def put(cache: Path) -> None:
    """Into a program's cache folder, where it is not there yet, as if Triton had built it."""
    for name, content in _built.items():
        file = cache / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{file.name}.{os.getpid()}")  # another worker may be at it
            part.write_bytes(content)
            part.replace(file)


def _build(folder: str) -> NoReturn:
    try:
        signal.alarm(_PATIENCE)
        from triton import knobs
        from triton.backends.nvidia import driver

        knobs.cache.dir = folder
        driver.CudaUtils()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)  # whatever is in the folder by now is what there is

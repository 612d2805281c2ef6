"""Builds the extension module through which Triton calls the driver, once for all workers.

Triton would build it with the host's compiler in every cache folder that lacks it, and each program has a cache folder
of its own. Building ends with loading the module, and with it the driver's library. The process from which workers are
forked must not load that library, so a child of it does the build. The file's bytes stay in memory, where no program
can change them.
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
"""Seconds to wait for the build. It must be a whole number."""

_built: dict[Path, bytes] = {}


def begin() -> Callable[[], None]:
    """Start the build in a child process. The returned function waits for it and keeps the built file, if the build
    succeeded."""
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
    """Write the built file into a program's cache folder, if it is not there yet, as if Triton had built it."""
    for name, content in _built.items():
        file = cache / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{file.name}.{os.getpid()}")  # another worker may write it at the same time
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
        os._exit(0)  # skips exit handlers, and leaves the folder as it is now

"""Builds the extension module by which Triton calls the driver, once for all workers.

Triton builds it with the host's compiler in every cache folder that has none, and each program has a separate folder.
Here a child of the process from which workers are forked builds it, because building ends with loading it, and with it
the driver's library, which that process must not load. The file's bytes stay in memory, where no program can change
them.
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
"""Seconds to wait for the build, a whole number."""

_built: dict[Path, bytes] = {}


def begin() -> Callable[[], None]:
    """Start the build. The returned function waits for it and keeps the file; it keeps nothing where the build
    failed."""
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
    """Write the file into a program's cache folder, if it is not there, as if Triton had built it."""
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
        os._exit(0)  # keep what is in the folder now

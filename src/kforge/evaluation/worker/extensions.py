"""Supports candidates that build with `torch.utils.cpp_extension`: faster builds, kept builds, readable errors, no
stale locks."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.evaluation.worker import slim_headers
from kforge.inline import diagnostics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Build = Callable[..., None]

_SOURCE = re.compile(r"\S*/\w+\.(?:cpp|cu)(?=[:\s])")
"""Matches the path of the file into which torch writes an inline source. The author of the program does not know that
path."""


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Let torch build in `folder`, which the next worker of the same program uses again.

    torch marks a running build by a lock file, and waits for ever if the builder was killed. kforge holds a kernel lock
    on the folder, which is released when a process dies. So while kforge holds that lock, torch's lock files are stale,
    and are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "building").open("w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        for stale in folder.glob("*/lock"):
            stale.unlink(missing_ok=True)
        os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
        yield


def try_slim_headers() -> None:
    """Make torch build inline sources with small replacements of its headers first, and normally if that fails."""
    import torch

    try:
        from torch.utils import cpp_extension
    except ImportError:  # a dependency is missing; a program that imports it gets the error
        return
    build: Build | None = getattr(cpp_extension, _BUILD, None)
    if build is not None and not hasattr(build, "__wrapped__"):
        setattr(cpp_extension, _BUILD, slim_first(build, Path(torch.__file__).parent / "include"))


_BUILD = "_write_ninja_file_and_build_library"
"""The function in torch that builds every extension after its sources were written."""


def slim_first(build: Build, headers: Path) -> Build:
    """Return a build function that tries small headers first, and calls `build` normally if they do not suffice.

    `headers` is torch's include folder. A failure is remembered in a file, so that the next worker does not try again.
    """

    @functools.wraps(build)
    def attempt(**options: Any) -> None:
        sources, folder = [Path(source) for source in options["sources"]], Path(options["build_directory"]) / "slim"
        program = repr((sorted(options.items()), [source.read_text() for source in sources]))
        failed = folder / f"{hashlib.sha256(program.encode()).hexdigest()}.failed"
        if not failed.exists():  # otherwise they have failed in an earlier worker
            try:
                small = slim_headers.written_for(sources, headers, folder)
                if small is not None:
                    return build(**options | _before(small, options))
            except (OSError, RuntimeError):  # if the source is wrong, the build with torch's own headers reports it
                failed.parent.mkdir(exist_ok=True)
                failed.touch()
        return build(**options)

    return attempt


def _before(small: list[Path], options: dict[str, Any]) -> dict[str, Any]:
    """Return the build options that put the small headers first."""
    return {
        "extra_include_paths": [*map(str, small), *options["extra_include_paths"]],
        "extra_ldflags": [*options["extra_ldflags"]],  # a copy: torch adds to the list that it is given
        "verbose": False,  # the output of a failed attempt is not for the program's author
    }


def build_log(error: BaseException) -> str | None:
    """Return the compiler's errors if the exception says that torch could not build an extension; otherwise None.

    torch has no exception type for this.
    """
    text = str(error)
    if not isinstance(error, RuntimeError) or not text.startswith(("Error building extension", "Ninja is required")):
        return None
    return diagnostics.trim(_SOURCE.sub("kernel.cpp", text.partition(": ")[2] or text))

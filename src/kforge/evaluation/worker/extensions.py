"""Candidates that build with `torch.utils.cpp_extension`: quickly, kept per program, readable errors, no stale lock."""

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
"""Path at which torch puts an inline source; its author wrote it as a string."""


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Let torch build in this program's own folder, where the next worker of the same program finds the result.

    torch marks a build by a file that it removes when it is done, and waits for ever on one whose process was killed.
    kforge holds a lock that the kernel frees with its holder: the holder knows that any such file is stale.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "building").open("w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        for stale in folder.glob("*/lock"):
            stale.unlink(missing_ok=True)
        os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
        yield


def try_slim_headers() -> None:
    """Let torch build inline sources first with small replacements for its headers, and as usual where those fail."""
    import torch

    try:
        from torch.utils import cpp_extension
    except ImportError:  # a dependency is missing; a program that imports it gets the error
        return
    build: Build | None = getattr(cpp_extension, _BUILD, None)
    if build is not None and not hasattr(build, "__wrapped__"):
        setattr(cpp_extension, _BUILD, slim_first(build, Path(torch.__file__).parent / "include"))


_BUILD = "_write_ninja_file_and_build_library"
"""The one function in torch that builds every extension, after the sources are written."""


def slim_first(build: Build, headers: Path) -> Build:
    """Return the same build, with small headers before torch's own `headers` where they suffice for its sources."""

    @functools.wraps(build)
    def attempt(**options: Any) -> None:
        sources, folder = [Path(source) for source in options["sources"]], Path(options["build_directory"]) / "slim"
        program = repr((sorted(options.items()), [source.read_text() for source in sources]))
        failed = folder / f"{hashlib.sha256(program.encode()).hexdigest()}.failed"
        if not failed.exists():  # otherwise an earlier worker has found out
            try:
                small = slim_headers.written_for(sources, headers, folder)
                if small is not None:
                    return build(**options | _before(small, options))
            except (OSError, RuntimeError):  # torch's own headers shall report the error, if there is one
                failed.parent.mkdir(exist_ok=True)
                failed.touch()
        return build(**options)

    return attempt


def _before(small: list[Path], options: dict[str, Any]) -> dict[str, Any]:
    return {
        "extra_include_paths": [*map(str, small), *options["extra_include_paths"]],
        "extra_ldflags": [*options["extra_ldflags"]],  # torch adds to the list it is given
        "verbose": False,  # the output of a failed attempt is not for the program's author
    }


def build_log(error: BaseException) -> str | None:
    """The compiler's errors when torch could not build an extension, else None: torch has no error type for it."""
    text = str(error)
    if not isinstance(error, RuntimeError) or not text.startswith(("Error building extension", "Ninja is required")):
        return None
    return diagnostics.trim(_SOURCE.sub("kernel.cpp", text.partition(": ")[2] or text))

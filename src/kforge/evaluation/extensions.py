"""Candidates that build with `torch.utils.cpp_extension`: builds kept per program, readable errors, no stale lock."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kforge.inline import diagnostics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SOURCE = re.compile(r"\S*/\w+\.(?:cpp|cu)(?=[:\s])")
"""Where torch puts an inline source; a reader of the message wrote it as a string."""


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Let torch build in this program's own folder, where the next worker of the same program finds the result.

    torch marks a build by a file that it removes when it is done, and waits for ever on one whose process was killed.
    We hold a lock that the kernel frees with its holder: whoever has it knows that any such file is stale.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "building").open("w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        for stale in folder.glob("*/lock"):
            stale.unlink(missing_ok=True)
        os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
        yield


def build_log(error: BaseException) -> str | None:
    """The compiler's errors when torch could not build an extension, else None: it has no error type of its own."""
    text = str(error)
    if not isinstance(error, RuntimeError) or not text.startswith(("Error building extension", "Ninja is required")):
        return None
    return diagnostics.trim(_SOURCE.sub("kernel.cpp", text.partition(": ")[2] or text))

"""What the process that started kforge may have left wrong: closed standard streams, and an ignored SIGCHLD."""

from __future__ import annotations

import os
import signal
import sys


def repair() -> None:
    """Open the standard streams that are closed, and let this process wait for its children.

    A file or socket that is opened later would get the number of a closed stream, and be written to as if it were that.
    Where SIGCHLD is ignored, the kernel reaps children, and how they ended is never known.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if not _is_open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, and all lower ones are taken
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True

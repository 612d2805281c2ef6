"""Repairs what the parent process may have left wrong: closed standard streams, and an ignored SIGCHLD."""

from __future__ import annotations

import os
import signal
import sys


def repair() -> None:
    """Open the standard streams that are closed, and let this process wait for its children.

    Otherwise a file or socket that is opened later would get the number of a closed stream, and output would be written
    into it. Where SIGCHLD is ignored, the kernel reaps children, and their exit status is lost.
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

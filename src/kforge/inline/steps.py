"""Runs one step of a build in the build's folder. At the deadline, the step and all its child processes are killed."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from kforge.inline import configuration
from kforge.inline.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LOG = "compiler.log"
_LOG_BYTES = 1 << 20


def run(command: Sequence[str], place: Path) -> tuple[int, str]:
    """Run the command and return its exit status and output. Raises CompileError if it does not finish before the
    deadline."""
    deadline = configuration.current().deadline
    # Messages are read by rules and by models, so they must be in English, whatever the machine's locale is.
    command = ["env", "LC_ALL=C", *command]
    with (place / _LOG).open("wb") as log:
        step = subprocess.Popen(
            command, cwd=place, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            status = step.wait(timeout=deadline)
        except BaseException as interruption:
            os.killpg(step.pid, signal.SIGKILL)
            step.wait()
            if isinstance(interruption, subprocess.TimeoutExpired):
                raise CompileError(f"the compiler was stopped after {deadline:g} s") from None
            raise
    with (place / _LOG).open("rb") as log:
        return status, log.read(_LOG_BYTES).decode(errors="replace")

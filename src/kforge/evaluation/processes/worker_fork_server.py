"""The fork server of workers: a process with torch imported that forks each worker into a sandbox.

`import torch` takes 1.7 s of one core, a fork 6 ms. So every candidate gets a fresh process at almost no cost. A
platform may import more modules here that all its workers need (`preload.py`). The fork server never runs foreign code,
holds no secret, and starts no thread pool, which would not survive a fork.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.evaluation.constants import FOREVER, MAX_TRUSTED_FRAME
from kforge.evaluation.processes.fork_requests import ForkServer, Opened
from kforge.evaluation.sandbox import Border, NoSandboxError, choose, syscalls
from kforge.evaluation.transport.channel import Channel
from kforge.evaluation.transport.wire import Tree, WireMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.evaluation.sandbox import Warden

FRONT, WHOLE = "front", "whole"
"""How much of torch's compiler a fork server has imported: FRONT is only `torch._dynamo`, WHOLE is inductor as well."""


@dataclass(frozen=True)
class Open(WireMessage, kind=36):
    """The first request: the sandbox layers to try, the folders and devices that workers may use, and their
    platform."""

    ladder: Tree
    readable: Tree
    devices: Tree
    platform: str
    """The platform's folder, with its `preload.py` if it has one."""
    compiler: str
    """What the server imports of torch's compiler: FRONT, WHOLE or nothing (empty)."""


def serve(descriptor: int, warden: Warden | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Run the fork server in this process until its client is gone.

    `descriptor` is its end of the channel. `warden` makes the cells of workers, if it was already forked. `environment`
    replaces this process's environment; workers inherit it.
    """
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    opening = channel.receive(FOREVER)
    assert isinstance(opening, Open)
    try:
        layer = choose(opening.ladder, Border(tuple(opening.readable), tuple(opening.devices)), Path.cwd(), warden)
    except NoSandboxError as error:
        channel.send(Opened("", str(error)))
        return
    # this process must outlive the referee for a moment, to end its workers; EOF on the channel ends it
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)
    channel.send(Opened(layer.name, layer.describe()))
    gc.disable()  # imported objects are never garbage, and searching them takes a tenth of the time
    from kforge.evaluation.worker import main as worker

    _preload(Path(opening.platform), opening.compiler)
    gc.freeze()  # present objects are never collected, so their pages stay shared
    gc.enable()
    ForkServer(channel, layer, worker.serve).work()


def _preload(platform: Path, compiler: str) -> None:
    """Import what the platform and the compiler need, while the referee reads its problem.

    A request for a worker that arrives meanwhile waits. This only saves time: an exception is written to the log, and
    each worker imports for itself.
    """
    from kforge import platforms

    try:
        platforms.preload(platform)
        if compiler in (FRONT, WHOLE):
            import torch._dynamo
        if compiler == WHOLE:
            import torch._inductor.compile_fx  # noqa: F401
    except Exception:
        traceback.print_exc()


if __name__ == "__main__":
    serve(int(sys.argv[1]))

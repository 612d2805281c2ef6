"""The fork server of workers: a process that has torch imported, and forks workers behind a sandbox border.

`import torch` takes 1.7 s of one core and a fork 6 ms, so every candidate gets a fresh process at almost no cost. A
platform may preload here what every worker of it needs. The fork server itself never runs foreign code, holds no
secret, and starts no thread pool that a fork would break.
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
from kforge.evaluation.sandbox import Border, NoBorder, choose, syscalls
from kforge.evaluation.transport.channel import Channel
from kforge.evaluation.transport.wire import Tree, WireMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kforge.evaluation.sandbox import Warden

FRONT, WHOLE = "front", "whole"
"""How much of torch's compiler a fork server has imported."""


@dataclass(frozen=True)
class Open(WireMessage, kind=36):
    """The first request: which sandbox layers may be used, which folders are inside, and whose workers they are."""

    ladder: Tree
    readable: Tree
    devices: Tree
    platform: str
    """The platform's folder."""
    compiler: str
    """What its workers have imported of torch's compiler: nothing (empty), its front or all of it."""


def serve(descriptor: int, warden: Warden | None = None, environment: Mapping[str, str] | None = None) -> None:
    """Run the fork server in this process, with the environment of its workers."""
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    opening = channel.receive(FOREVER)
    assert isinstance(opening, Open)
    try:
        layer = choose(opening.ladder, Border(tuple(opening.readable), tuple(opening.devices)), Path.cwd(), warden)
    except NoBorder as error:
        channel.send(Opened("", str(error)))
        return
    # nothing may survive the referee: this process outlives it for a moment, and ends its workers
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 0)
    channel.send(Opened(layer.name, layer.describe()))
    gc.disable()  # imported objects stay, and searching them for garbage takes a tenth of the time
    from kforge.evaluation.worker import main as worker

    _preload(Path(opening.platform), opening.compiler)
    gc.freeze()  # present objects are never collected, so their pages stay shared
    gc.enable()
    ForkServer(channel, layer, worker.serve).work()


def _preload(platform: Path, compiler: str) -> None:
    """Preload while the referee reads its problem. A request for a worker meanwhile waits, and its worker need not
    import.

    This is only about speed: failures go to the log, and a worker repeats the work.
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

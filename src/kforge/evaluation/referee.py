"""The trusted process: it draws the inputs, knows the answers, reads the clock and decides.

This module is only its door. The nursery of workers is started before anything heavy is imported, so that the two
interpreters load torch side by side.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import InputError, KforgeError
from kforge.evaluation.channel import Channel, SideDied
from kforge.evaluation.constants import MAX_TRUSTED_FRAME
from kforge.evaluation.court import Case, Court
from kforge.evaluation.nursery import Workers
from kforge.evaluation.wire import Document
from kforge.records import Problem, Record

if TYPE_CHECKING:
    from kforge.evaluation.trial import Bench

FOREVER = 7 * 24 * 3600.0


def main() -> None:
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), max_frame=MAX_TRUSTED_FRAME)
    opening = channel.receive(FOREVER)
    assert isinstance(opening, Document)
    court = Court.from_json(opening.body)
    workers = Workers(
        work=Path(court.work),
        tool_path=court.tool_path,
        threads=court.threads,
        extra=court.worker_environment,
        readable=(Path(court.platform_folder),),
        device_nodes=court.device_nodes,
        ladder=court.ladder,
    )
    from kforge.evaluation.trial import Bench

    bench = Bench(court, workers, say=lambda stage: channel.send(Document("stage", stage)))
    while True:
        try:
            request = channel.receive(FOREVER)
        except SideDied:
            bench.close()
            return
        assert isinstance(request, Document)
        channel.send(_answer(bench, request))


def _answer(bench: Bench, request: Document) -> Document:
    try:
        return Document("response", _dispatch(bench, request).to_json())
    except InputError as error:
        return Document("input_error", json.dumps([type(error).__name__, str(error)]))
    except KforgeError as error:
        return Document("error", str(error))
    except Exception as error:  # a fault of ours: the orchestrator says so, and no verdict is made of it
        return Document("error", f"the referee failed: {type(error).__name__}: {error}")


def _dispatch(bench: Bench, request: Document) -> Record:
    match request.topic:
        case "describe":
            return bench.describe(Problem.from_json(request.body))
        case "evaluate":
            return bench.evaluate(Case.from_json(request.body))
        case "profile":
            return bench.profile(Case.from_json(request.body))
        case "peaks" | "fresh peaks":
            return bench.peaks(fresh=request.topic == "fresh peaks")
    raise KforgeError(f"the referee does not know the request {request.topic!r}")


def _die_with_parent() -> None:
    """Where the kernel does not do it for us (it does on Linux), leave when the orchestrator is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    if sys.platform != "linux":
        _die_with_parent()
    main()

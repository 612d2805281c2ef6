"""Entry point of the referee, the trusted process that draws inputs, knows the answers, reads the clock and decides.

It imports torch and what workers need, and forks the fork server of workers. Only after that does it receive anything
that a worker must not know, such as the user's environment.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import sys
import threading
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.errors import InputError, KforgeError
from kforge.evaluation.constants import FOREVER, MAX_TRUSTED_FRAME
from kforge.evaluation.processes import launch
from kforge.evaluation.processes.worker_start import Workers
from kforge.evaluation.sandbox import Warden
from kforge.evaluation.sandbox.forking import reap_children
from kforge.evaluation.transport.channel import Channel, SideDied
from kforge.evaluation.transport.options import RefereeSetup
from kforge.evaluation.transport.wire import Document

if TYPE_CHECKING:
    from kforge.evaluation.referee.evaluator import Evaluator
    from kforge.records import Record


def serve(descriptor: int) -> None:
    """Answer the orchestrator's requests until it is gone. `descriptor` is this process's end of the channel."""
    reap_children()
    channel = Channel(socket.socket(fileno=descriptor), max_frame=MAX_TRUSTED_FRAME)
    setup = channel.receive(FOREVER)
    assert isinstance(setup, RefereeSetup)
    # forked now, while this process is small, because every worker needs a fork of the warden
    warden = Warden.fork() if sys.platform == "linux" else None
    gc.disable()  # imported objects are never garbage, and searching them takes a tenth of the time
    from kforge.evaluation.worker import main as worker  # noqa: F401 - for the fork server

    import_flop_formulas()
    gc.freeze()
    gc.enable()
    workers = Workers(
        work=Path(setup.work),
        environment=launch.common_environment(
            tool_path=setup.tool_path, threads=setup.threads, extra=setup.worker_environment
        ),
        private=[Path(folder) for folder in json.loads(setup.private)],
        platform=Path(setup.platform_folder),
        device_nodes=setup.device_nodes,
        ladder=setup.ladder,
        warden=warden,
    )
    _take_on_environment(channel)
    from kforge.evaluation.referee.evaluator import Evaluator

    evaluator = Evaluator(
        setup,
        workers,
        say=lambda stage: channel.send(Document("stage", stage)),
        give_up=lambda reason: channel.send(Document("error", reason)),
    )
    while True:
        try:
            request = channel.receive(FOREVER)
        except SideDied:
            evaluator.close()
            return
        assert isinstance(request, Document)
        channel.send(_answer(evaluator, request))


class _TorchOnly(MetaPathFinder):
    """An import hook that refuses to import packages other than torch."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname.partition(".")[0] != "torch":
            raise ImportError(f"{fullname} is not imported here")


def import_flop_formulas() -> None:
    """Import torch's FLOP formulas, but not Triton, which their module imports if it is installed.

    Importing Triton takes 0.3 s, and its formulas are for kernels that no reference calls.
    """
    logger, only = logging.getLogger("torch.utils.flop_counter"), _TorchOnly()
    disabled, logger.disabled = logger.disabled, True  # it would warn that Triton is missing
    sys.meta_path.insert(0, only)
    try:
        import torch.utils.flop_counter  # noqa: F401
    finally:
        sys.meta_path.remove(only)
        logger.disabled = disabled


def _take_on_environment(channel: Channel) -> None:
    """Receive the user's environment variables and set them."""
    told = channel.receive(FOREVER)
    assert isinstance(told, Document)
    os.environ.update(json.loads(told.body))


def _answer(evaluator: Evaluator, request: Document) -> Document:
    """Return the answer to a request. An exception becomes an error document."""
    try:
        return Document("response", _dispatch(evaluator, request).to_json())
    except InputError as error:
        return Document("input_error", json.dumps([type(error).__name__, str(error)]))
    except KforgeError as error:
        return Document("error", str(error))
    except Exception as error:  # a defect of kforge: the orchestrator reports it, and it becomes no verdict
        return Document("error", f"the referee failed: {type(error).__name__}: {error}")


def _dispatch(evaluator: Evaluator, request: Document) -> Record:
    """Call the evaluator's method for a request."""
    from kforge.evaluation.requests import BuildRequest, CandidateRequest, DeviceName, Fitness, HeadToHeadRequest
    from kforge.records import Problem

    match request.topic:
        case "describe":
            return evaluator.describe(Problem.from_json(request.body))
        case "build":
            return evaluator.build(BuildRequest.from_json(request.body))
        case "evaluate":
            return evaluator.evaluate(CandidateRequest.from_json(request.body))
        case "head to head":
            return evaluator.head_to_head(HeadToHeadRequest.from_json(request.body))
        case "profile":
            return evaluator.profile(CandidateRequest.from_json(request.body))
        case "sanitize":
            return evaluator.sanitize(CandidateRequest.from_json(request.body))
        case "device":
            return DeviceName(name=evaluator.adapter.describe_device())
        case "fitness":
            return Fitness(fit=evaluator.is_fit())
        case "peaks" | "fresh peaks":
            return evaluator.peaks(fresh=request.topic == "fresh peaks")
        case "facts":
            return evaluator.facts()
    raise KforgeError(f"the referee received an unknown request {request.topic!r}; this is a bug in kforge")


def _die_with_parent() -> None:
    """Start a thread that ends this process when the orchestrator is gone, for systems whose kernel cannot do that."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    if sys.platform != "linux":
        _die_with_parent()
    serve(int(sys.argv[1]))

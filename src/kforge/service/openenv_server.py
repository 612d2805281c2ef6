"""An OpenEnv server: episodes over a WebSocket, as OpenEnv's own client speaks it. Needs the extra `openenv`.

OpenEnv's own server library brings 70 packages, among them Gradio and pandas, and pins an older MCP SDK. Its protocol
is small, so this server needs Starlette and uvicorn only; the tests talk to it by OpenEnv's own client.
"""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from kforge import __version__
from kforge.errors import InputError, KforgeError
from kforge.records import as_json
from kforge.service.episodes import Episode, EpisodeState, KernelAction
from kforge.service.evaluations import LARGEST_SOURCE
from kforge.service.mcp_server import must_be_loopback, url_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.websockets import WebSocket

    from kforge.service.evaluations import EvaluationService

MOST_SESSIONS = 32
"""Clients that may be connected at once; their programs are judged one after the other."""
LARGEST_MESSAGE = 8 * LARGEST_SOURCE
"""Most bytes of a message: a program in JSON, where a character may take six bytes."""
RESET = {"problem": str, "seed": int, "episode_id": str}
"""The arguments of `reset` that a client may send, with their types."""


def serve(service: EvaluationService, steps: int, *, address: tuple[str, int], ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C, at an address of this machine. `ready` gets the URL before the first client is taken.

    Raises InputError without the extra, and for an address that others can reach.
    """
    host, port = address
    must_be_loopback(host)
    check_installed()
    import uvicorn

    made = application(service, steps)
    ready(url_of(host, port))
    uvicorn.run(made, host=host, port=port, log_level="warning", ws_max_size=LARGEST_MESSAGE)


def application(service: EvaluationService, steps: int) -> Starlette:
    """Return the server's application."""
    from starlette.applications import Starlette
    from starlette.routing import Route, WebSocketRoute

    sessions = Sessions(service, steps)
    about = {"name": "kforge", "description": "Kernels for PyTorch modules, judged and timed.", "version": __version__}
    schemas = {"action": KernelAction, "observation": None, "state": EpisodeState}
    shapes = {name: each.model_json_schema() if each else {"type": "object"} for name, each in schemas.items()}
    return Starlette(
        routes=[
            Route("/health", _says({"status": "healthy"})),
            Route("/metadata", _says(about)),
            Route("/schema", _says(shapes)),
            WebSocketRoute("/ws", sessions.talk),
        ]
    )


def check_installed() -> None:
    """Raise InputError where the extra `openenv` is not installed."""
    # uvicorn speaks to clients by websockets
    if not all(map(importlib.util.find_spec, ("starlette", "uvicorn", "websockets"))):
        raise InputError("an OpenEnv server needs Starlette and uvicorn: pip install 'kforge[openenv]'")


class Sessions:
    """The clients of a server, each with its own episode."""

    def __init__(self, service: EvaluationService, steps: int) -> None:
        self.service = service
        self.steps = steps
        self._open = 0

    async def talk(self, socket: WebSocket) -> None:
        """Answer one client until it leaves. Every message gets one answer: an observation, a state or an error."""
        from starlette.websockets import WebSocketDisconnect

        if not _is_local(socket):
            await socket.close(code=1008)  # a web page that the user visits, not a trainer
            return
        await socket.accept()
        if self._open >= MOST_SESSIONS:
            await socket.send_text(_error(f"{MOST_SESSIONS} clients are connected already", "CAPACITY_REACHED"))
            await socket.close()
            return
        self._open += 1
        episode = Episode(self.service, self.steps)
        try:
            while (answer := await _answer(episode, await socket.receive_text())) is not None:
                await socket.send_text(answer)
            await socket.close()
        except (WebSocketDisconnect, KeyError):  # Starlette raises KeyError for a message of bytes
            pass
        finally:
            self._open -= 1


async def _answer(episode: Episode, text: str) -> str | None:
    """Return the answer to a message; None if the message is `close`."""
    from starlette.concurrency import run_in_threadpool

    try:
        message = json.loads(text)
        kind, data = message["type"], message.get("data") or {}
        assert isinstance(data, dict)
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError, RecursionError):
        return _error("a message is a JSON object with type and data", "INVALID_JSON")
    try:
        match kind:
            case "reset":
                return _said("observation", await run_in_threadpool(episode.reset, **_reset_arguments(data)))
            case "step":
                return _said("observation", await run_in_threadpool(episode.step, KernelAction.model_validate(data)))
            case "state":
                return _said("state", as_json(episode.state))
            case "close":
                return None
    except ValidationError:
        return _error("an action is an object with source, a text, and nothing else but metadata", "VALIDATION_ERROR")
    except KforgeError as error:
        return _error(" ".join(str(error).split()), "EXECUTION_ERROR")
    return _error("the type of a message is reset, step, state or close", "UNKNOWN_TYPE")


def _reset_arguments(data: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a reset. Raises InputError for an unknown one, or one of another type."""
    given = {name: value for name, value in data.items() if value is not None}
    for name, value in given.items():
        if name not in RESET or type(value) is not RESET[name]:
            raise InputError(f"reset takes {', '.join(f'{each} ({kind.__name__})' for each, kind in RESET.items())}")
    return given


def _said(kind: str, data: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "data": data}, allow_nan=False)


def _error(message: str, code: str) -> str:
    return _said("error", {"message": message, "code": code})


def _is_local(socket: WebSocket) -> bool:
    """Return whether the request names this machine as its host, and does not come from another site's web page."""
    names = [urlsplit(f"//{socket.headers.get('host', '')}").hostname]
    if (origin := socket.headers.get("origin")) is not None:
        names.append(urlsplit(origin).hostname)
    try:
        for name in names:
            must_be_loopback(name or "")
    except InputError:
        return False
    return True


def _says(document: dict[str, Any]) -> Callable[[Request], JSONResponse]:
    from starlette.responses import JSONResponse

    return lambda _: JSONResponse(document)

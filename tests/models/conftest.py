import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kforge.models import Message, Request

KEY = "sk-very-secret-0123456789"


@dataclass
class Server:
    """An OpenAI-compatible server on a real socket that does, call by call, what its script says."""

    url: str = ""
    script: list[Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=list)
    bodies: list[dict] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    @staticmethod
    def say(text: str | None, finish: str = "stop", model: str = "tiny-1"):
        completion = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        }
        return Server.send(200, json.dumps(completion))

    @staticmethod
    def send(status: int, body: str, content_type: str = "application/json", headers: dict[str, str] | None = None):
        def act(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in {"Content-Type": content_type, **(headers or {})}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body.encode())))
            handler.end_headers()
            handler.wfile.write(body.encode())

        return act

    @staticmethod
    def cut(handler: BaseHTTPRequestHandler) -> None:
        """Half an answer: fewer bytes than announced, then the connection closes."""
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"id": "1", "choices": [{"mess')
        handler.wfile.flush()
        handler.connection.close()

    @staticmethod
    def cut_stream(handler: BaseHTTPRequestHandler) -> None:
        """A chunked answer that breaks off in the middle of a chunk."""
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b'40\r\n{"id": "1", "choices": [{"mess')
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def drip(handler: BaseHTTPRequestHandler) -> None:
        """A byte now and then, for ever: no single read ever takes long."""
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            state.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            state.keys.append(self.headers.get("Authorization", ""))
            # The client may have gone, as several scripts intend.
            with suppress(OSError):
                state.script[min(len(state.bodies), len(state.script)) - 1](self)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        state.url = f"http://127.0.0.1:{http.server_port}/v1"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield state
        http.shutdown()
        thread.join()


@pytest.fixture
def ask() -> Callable[..., Request]:
    """Makes a request; `measured` changes its text and not its fingerprint."""

    def make(
        question: str = "how?", *, model: str = "exchange", agent: str = "generation", measured: str = "1"
    ) -> Request:
        return Request(
            agent=agent,
            model=model,
            messages=(
                Message(role="system", text="be good", fingerprint="be good"),
                Message(role="user", text=f"{question} {measured}", fingerprint=f"{question} M"),
            ),
            max_tokens=100,
        )

    return make


@pytest.fixture
def secret() -> str:
    return KEY

"""Access control: checks the host, the origin and the token of a request, and adds headers to every answer.

A page of another site that the user visits can send requests to this server. Three checks stop it. The Host header must
name this machine; a rebound DNS name does not. The Origin must be this server's own. A request that changes something
and has neither Origin nor token must be JSON, which no other site's page can send without a preflight request.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import secrets
import socket
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kforge.errors import InputError
from kforge.service.evaluations import LARGEST_SOURCE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SHORTEST_TOKEN = 16
"""Least characters of a token that a user chooses: fewer could be guessed over a network."""
LARGEST_BODY = 16 * LARGEST_SOURCE
"""Most bytes of a request: two programs in JSON, where a character may take six bytes."""
BODY_SECONDS = 30.0
"""Most seconds that a client may take to send a request's body."""
WRONG_TOKEN_SECONDS = 0.5
"""Pause after a wrong token, so that guessing is slow."""
SESSION_SECONDS = 12 * 3600
"""How long a browser stays logged in: a working day."""
OPEN_TO_ALL = ("/health", "/login")
"""Paths that need no token. Files under `/static/` need none either: they hold nothing of a run."""
SAFE_METHODS = ("GET", "HEAD")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # not no-referrer: forms of our own pages would then have no origin
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    # one request a connection, so that the deadline for a request's first bytes holds for every request
    "Connection": "close",
}
"""Headers of every answer."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    """The access rules of one server."""

    host: str
    """The address at which the server listens."""
    port: int
    token: str = ""
    """Empty if no token is needed, which only a loopback address allows."""
    session_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    """Key of this process that makes session cookies. They do not reveal the token, and are invalid once the server
    ends."""

    @classmethod
    def of(cls, host: str, port: int, token: str | None) -> Access:
        """Return the rules for an address. A server that other machines can reach always has a token.

        Raises InputError for a token that is too short or is not plain text.
        """
        if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
            raise InputError(f"--token needs at least {SHORTEST_TOKEN} printable ASCII characters")
        if token is None and not is_loopback(host):
            token = secrets.token_urlsafe(24)
        return cls(host, port, token or "")

    @property
    def cookie_name(self) -> str:
        """The session cookie's name. Browsers send cookies to all ports of a host, so the name has the port."""
        return f"kforge_{self.port}"

    def session(self) -> str:
        """Return the value of the session cookie."""
        return hmac.new(self.session_key, self.token.encode(), hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Return whether this is the token, in constant time."""
        # surrogatepass: JSON can hold half of a UTF-16 pair, which UTF-8 refuses to encode by default
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self.token.encode())

    def knows_host(self, host: str) -> bool:
        """Return whether a Host header names this server. A name that DNS could point here is not believed."""
        try:
            split = urlsplit(f"//{host}")
            name = split.hostname or ""
        except ValueError:
            return False
        if "@" in split.netloc:  # no browser sends a user's name here
            return False
        if is_loopback(self.host):
            return is_loopback(name)
        return _is_address(name) or name in {self.host.lower(), "localhost", socket.gethostname().lower()}

    def refusal(self, request: Headers) -> tuple[int, str] | None:
        """Return status and reason if a request may not pass; None if it may. The token is checked separately."""
        host = request.get("host")
        if not self.knows_host(host):
            return 403, "the Host header does not name this server"
        origin = request.get("origin")
        if origin and origin != f"http://{host}":
            return 403, "the request comes from a page of another site"
        site = request.get("sec-fetch-site")
        is_link = request.get("sec-fetch-mode") == "navigate" and request.method in SAFE_METHODS
        if site and site not in ("same-origin", "none") and not is_link:
            return 403, "the request comes from a page of another site"
        if request.method in SAFE_METHODS or self._is_bearer(request):
            return None
        is_own_page = origin == f"http://{host}" or site == "same-origin"
        if not is_own_page and not request.get("content-type").startswith("application/json"):
            return 403, "send JSON (Content-Type: application/json), or the token"
        return None

    def is_admitted(self, request: Headers) -> bool:
        """Return whether a request needs no token, or has the token or a session."""
        if not self.token or request.path in OPEN_TO_ALL or request.path.startswith("/static/"):
            return True
        return self._is_bearer(request) or self._has_session(request)

    def _is_bearer(self, request: Headers) -> bool:
        kind, _, given = request.get("authorization").partition(" ")
        return bool(self.token) and kind.lower() == "bearer" and self.is_token(given.strip())

    def _has_session(self, request: Headers) -> bool:
        try:
            cookies = SimpleCookie(request.get("cookie"))
        except CookieError:
            return False
        found = cookies.get(self.cookie_name)
        return found is not None and hmac.compare_digest(found.value.encode(), self.session().encode())


class Headers:
    """Method, path and headers of a request."""

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._values: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

    def get(self, name: str) -> str:
        """Return a header's value. Empty if it is absent. If it is given twice, its values are joined, which matches no
        valid value."""
        return "\0".join(self._values.get(name, []))

    @property
    def wants_page(self) -> bool:
        """Whether a browser asks for a page to show."""
        return self.method == "GET" and "text/html" in self.get("accept")


class Guard:
    """Lets a request reach the application only if `Access` admits it, with its body read whole and in time."""

    def __init__(self, application: ASGIApp, access: Access) -> None:
        self.application = application
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no WebSocket is served; the server answers 403
        request = Headers(scope)
        with_headers = _adding_headers(send)
        if (refused := self.access.refusal(request)) is not None:
            await _answer(with_headers, *refused)
            return
        if not self.access.is_admitted(request):
            await self._ask_for_token(request, with_headers)
            return
        body = await _whole_body(request, receive)
        if isinstance(body, bytes):
            await self.application(scope, _replaying(body, receive), with_headers)
        else:
            await _answer(with_headers, *body)

    async def _ask_for_token(self, request: Headers, send: Send) -> None:
        if request.wants_page:
            await _answer(send, 303, "log in first", [(b"location", b"/login")])
            return
        if request.get("authorization"):
            await asyncio.sleep(WRONG_TOKEN_SECONDS)
        await _answer(send, 401, "this server needs its token: Authorization: Bearer TOKEN")


async def _whole_body(request: Headers, receive: Receive) -> bytes | tuple[int, str]:
    """Return the body of a request, or status and reason where it is too large or too slow."""
    if request.method in SAFE_METHODS:
        return b""
    too_large = 413, f"the request has more than {LARGEST_BODY} bytes"
    if (said := request.get("content-length")).isdecimal() and int(said) > LARGEST_BODY:
        return too_large
    parts = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                parts += message.get("body", b"")
                if len(parts) > LARGEST_BODY:
                    return too_large
                if not message.get("more_body"):
                    return bytes(parts)
    except TimeoutError:
        return 408, f"the request took longer than {BODY_SECONDS:g} s to arrive"


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body first, and then the messages of the server."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _adding_headers(send: Send) -> Send:
    raw = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message.get("headers", []) if pair[0].lower() not in dict(raw)]
            message = {**message, "headers": [*kept, *raw]}
        await send(message)

    return adding


async def _answer(send: Send, status: int, reason: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    body = json.dumps(error_document(reason)).encode()
    found = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *(headers or [])]
    await send({"type": "http.response.start", "status": status, "headers": found})
    await send({"type": "http.response.body", "body": body})


def error_document(reason: str, fields: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the document of every refused request. `fields`: what is wrong with each field of a request."""
    return {"error": " ".join(reason.split()), **({"fields": fields} if fields else {})}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

"""Runs the application at an address, with deadlines for slow clients."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from typing import TYPE_CHECKING, Any

from kforge.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import uvicorn

    from kforge.web.access import Access

FIRST_SECONDS = 10.0
"""Most seconds from a connection to the end of its request's headers. A connection has one request."""
MOST_CONNECTIONS = 128
"""Connections at once; later ones are answered with status 503."""
LAST_SECONDS = 3
"""Seconds that open answers have to end when the server ends."""


def check_installed() -> None:
    """Raise InputError where the extra `web` is not installed."""
    if not all(map(importlib.util.find_spec, ("fastapi", "uvicorn"))):
        raise InputError("the dashboard needs FastAPI and uvicorn: pip install 'kforge[web]'")


def serve(application: Any, access: Access, ready: Callable[[], None], ending: Callable[[], None]) -> None:
    """Serve until Ctrl-C. `ready` is called before the first request is taken, and `ending` when the server begins to
    end. Raises InputError if nothing can listen at the address."""
    with listening(access) as listener:
        ready()
        prepared(application, ending).run(sockets=[listener])


def prepared(application: Any, ending: Callable[[], None]) -> uvicorn.Server:
    """Return a server with its limits, to be run with a socket. `ending` is called when it begins to end."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):  # type: ignore[misc]
        """An HTTP protocol that closes a connection whose request headers do not arrive in time."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            asyncio.get_running_loop().call_later(FIRST_SECONDS, self._give_up, transport)

        def _give_up(self, transport: Any) -> None:
            if self.cycle is None:
                transport.close()

    class Ending(uvicorn.Server):  # type: ignore[misc]
        """A server that ends the event streams before it waits for open answers, because they never end themselves."""

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            ending()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        application, http=Impatient, ws="none", log_level="warning", access_log=False, server_header=False,
        limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=int(FIRST_SECONDS),
        timeout_graceful_shutdown=LAST_SECONDS,
    )  # fmt: skip
    return Ending(config)


def listening(access: Access) -> socket.socket:
    """Return a socket that listens at the server's address. Raises InputError if it cannot."""
    host, port = access.host, access.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(f"nothing can listen at {host} port {port}: {error.strerror or error}") from error

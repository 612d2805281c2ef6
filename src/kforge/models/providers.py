"""Providers through pydantic-ai, which chooses the client for a name. kforge adds retries, and keeps keys secret.

A key goes from the `keys` mapping into the provider's client and nowhere else: not into a request or reply on disk, not
into the text of an error, and never to a server given by URL, which has its own key (`KFORGE_SERVER_API_KEY`).
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.errors import ModelError, ProviderError
from kforge.models import event_loop
from kforge.models.budget import CallBudget
from kforge.models.conversation import IMAGES_REFUSED, Reply, Request
from kforge.models.names import is_same_model, provider_and_model
from kforge.models.prices import price_table
from kforge.models.provider_settings import unused_settings, wire_settings
from kforge.records import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse
    from pydantic_ai.models import Model as PydanticModel
    from pydantic_ai.providers import Provider

    from kforge.models.model_settings import ModelSettings

SERVER_KEY = "KFORGE_SERVER_API_KEY"
"""The variable with the key for a server given by URL, if it needs one."""

_PASSING = frozenset({408, 409, 425, 429})
"""Client error statuses for which a retry can help, as for every 5xx."""
_UNPROCESSABLE = frozenset({400, 413, 415, 422})
"""Statuses that say that the request itself is at fault. A request with images is then asked again without them."""
_ABOUT_IMAGES = re.compile(r"image|vision|multi-?modal|mmproj", re.IGNORECASE)
"""Words in an error that is about images. Some servers report it as an internal error, some as an unknown endpoint."""
_UNREACHED = frozenset({"ConnectError", "ConnectTimeout"})
"""Names of HTTP clients' errors for a failed connection. Names, because the client library differs by provider."""


@dataclass(frozen=True)
class Patience:
    """How long one answer is waited for, and how often a request is repeated."""

    attempts: int = 5
    connections: int = 2
    """Attempts on a server that cannot be reached. Few, because a wrong URL or a missing network is not fixed within
    seconds."""
    timeout: float = 900.0
    """Seconds for one attempt from first to last byte, so that a very slow server does not hold a run for ever."""
    first_wait: float = 2.0
    """Most seconds from the first failure to the next attempt, unless the provider asks for more. They double with each
    failure."""
    longest_wait: float = 60.0
    """Most seconds between any two attempts."""

    def wait(self, failures: int, asked: float | None) -> float:
        """Return the seconds before the next attempt: exponential, with random spread, at least what the provider asked
        for."""
        backoff = min(self.longest_wait, self.first_wait * 2.0 ** (failures - 1))
        # The spread keeps many runs from retrying at the same moment. It protects no secret.
        spread = backoff * random.uniform(0.5, 1.0)  # noqa: S311
        return max(spread, min(asked or 0.0, self.longest_wait))


class ProviderModel:
    """A model behind a provider's API."""

    def __init__(
        self,
        name: str,
        client: PydanticModel,
        *,
        key: str,
        priced: bool,
        patience: Patience | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`tell` gets progress reports: what is waited for, and every attempt that failed."""
        self.name = name
        self._client = client
        self._key = key
        self._priced = priced
        self._patience = patience or Patience()
        self._tell = tell
        self.budget = CallBudget()
        """The budget of the run. Waiting for an answer ends when its minutes are over."""

    @classmethod
    def open(
        cls,
        name: str,
        keys: Mapping[str, str],
        patience: Patience | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> ProviderModel:
        """Return the model named `PROVIDER:MODEL` or `PROVIDER:MODEL@URL`.

        Raises ModelError for an unknown provider, a missing extra or a missing key.
        """
        try:
            from pydantic_ai.exceptions import UserError
            from pydantic_ai.models import infer_model
            from pydantic_ai.providers import infer_provider_class
        except ImportError as error:
            raise ModelError(f"model {name!r} needs the extra 'models': pip install 'kforge[models]'") from error
        provider, model, url = provider_and_model(name)
        try:
            provider_class = infer_provider_class(provider)
        except ValueError as error:
            raise ModelError(f"unknown model {name!r}: there is no provider {provider!r}") from error
        except ImportError as error:
            raise ModelError(f"model {name!r} needs a package that is not installed: {_line(error)}") from error
        if not url:
            key = _key(provider, keys, name)
            arguments = {"api_key": key}
        else:
            key = keys.get(SERVER_KEY, "")
            # Clients require a key, and would take the provider's own from the environment.
            arguments = {"api_key": key or "none", "base_url": url}
            # Servers of other vendors implement the chat API only; the responses API is the provider's own.
            provider = "openai-chat" if provider == "openai" else provider

        def connect(_: str) -> Provider[Any]:
            return provider_class(**arguments)

        try:
            client = infer_model(f"{provider}:{model}", provider_factory=connect)
        except (UserError, TypeError, ImportError) as error:
            raise ModelError(f"model {name!r} cannot be opened: {_line(error, key)}") from None
        return cls(name, client, key=key, priced=not url, patience=patience, tell=tell)

    def unused(self, settings: ModelSettings) -> tuple[str, ...]:
        """Return the names of the given settings that this provider or model does not take."""
        return unused_settings(settings, self._client)

    def complete(self, request: Request) -> Reply:
        """Ask the provider, and retry while the error may be temporary.

        If the provider refuses the images of a request, the reply has the `finish` IMAGES_REFUSED and no answer.
        Raises ModelError when the provider refuses the key or does not know the model, and ProviderError when it
        refuses the request, cannot be reached or fails on every attempt.
        """
        patience = self._patience
        for failures in range(1, patience.attempts + 1):
            self.budget.check_time()
            number = f"attempt {failures} of {patience.attempts}"
            self._tell(f"waiting for {self.name}, {number}, at most {patience.timeout:g} s each")
            try:
                return self._reply(event_loop.run(self._ask(request)), failures)
            # Client libraries raise different errors for a broken answer. All mean the same to a run.
            except Exception as error:
                self.budget.check_time()
                reason = _unreachable(error)
                fault = f"{self.name}: {reason or _line(error, self._key)}"
                status = getattr(error, "status_code", None)
                if request.images and _refuses_images(error, status):
                    self._tell(f"the model takes no images: {fault}")
                    free = Usage(requests=1, cost_usd=0.0)  # providers do not charge for a request that they refuse
                    return Reply(text=fault, usage=free, model=self.name, finish=IMAGES_REFUSED)
                if status == 401:
                    # Providers quote parts of the key here, in forms that no redaction knows.
                    raise ModelError(f"{self.name}: the provider refuses the key (status 401)") from None
                if status in (403, 404):
                    raise ModelError(fault) from None
                if _is_final(error, status):
                    raise ProviderError(fault) from None
                asked = getattr(error, "retry_after", None)
            if failures >= (patience.connections if reason else patience.attempts):
                break
            seconds = min(patience.wait(failures, asked), self.budget.seconds_left)
            self._tell(f"{number} failed, the next one begins in {seconds:.0f} s: {fault}")
            time.sleep(seconds)
        raise ProviderError(f"{fault} (after {failures} attempts)")

    async def _ask(self, request: Request) -> ModelResponse:
        from pydantic_ai.models import ModelRequestParameters

        timeout = min(self._patience.timeout, self.budget.seconds_left)
        settings = wire_settings(request, self._client, timeout)
        async with asyncio.timeout(timeout), self._client:
            return await self._client.request(_history(request), settings, ModelRequestParameters())

    def _reply(self, response: ModelResponse, tries: int = 1) -> Reply:
        cost = _price(response) if self._priced else None
        return Reply(
            text=response.text or "",
            usage=Usage(
                requests=1,
                input_tokens=response.usage.input_tokens,
                output_tokens=response.usage.output_tokens,
                cost_usd=cost,
            ),
            prices="" if cost is None else price_table(),
            tries=tries,
            model=response.model_name or self.name,
            finish=response.finish_reason or "unknown",
            notes=self._another_model(response.model_name or ""),
        )

    def _another_model(self, answered: str) -> tuple[str, ...]:
        if is_same_model(self.name, answered):
            return ()
        return (f"another model answered: {self.name} was asked, and the reply is by {answered!r}",)


def _key(provider: str, keys: Mapping[str, str], name: str) -> str:
    stem = re.sub(r"-(chat|responses)$", "", provider).upper().replace("-", "_")
    variables = [f"{stem}_API_KEY", *(["GEMINI_API_KEY"] if stem == "GOOGLE" else [])]
    for variable in variables:
        if keys.get(variable):
            return keys[variable]
    raise ModelError(f"model {name!r} needs a key: set {' or '.join(variables)}, or put it into the key file")


def _history(request: Request) -> list[ModelMessage]:
    from pydantic_ai import messages as wire

    history: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    for message in request.messages:
        if message.role == "system":
            parts.append(wire.SystemPromptPart(message.text))
        elif message.role == "user":
            images = [wire.BinaryContent(image.content, media_type=image.media_type) for image in message.images]
            history.append(
                wire.ModelRequest([*parts, wire.UserPromptPart([message.text, *images] if images else message.text)])
            )
            parts = []
        else:
            history.append(wire.ModelResponse([wire.TextPart(message.text)]))
    return history


def _price(response: ModelResponse) -> float | None:
    """Return the price in US dollars, or None when it is not known."""
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None


def _is_final(error: Exception, status: int | None) -> bool:
    from pydantic_ai.exceptions import ContentFilterError, ModelQuotaExceededError, UserError

    if isinstance(error, (ContentFilterError, ModelQuotaExceededError, UserError)):
        return True
    return status is not None and status < 500 and status not in _PASSING


def _refuses_images(error: Exception, status: int | None) -> bool:
    """Return whether the error may come from the images of a request, so that it is worth asking without them."""
    from pydantic_ai.exceptions import UserError

    if status in _UNPROCESSABLE:
        return True
    may_be = status in (404, 500, 501) or isinstance(error, (UserError, NotImplementedError))
    return may_be and _ABOUT_IMAGES.search(str(error)) is not None


def _unreachable(error: BaseException) -> str:
    """Return why no connection was made, and what to check; empty for another error."""
    causes = list(_causes(error))
    if not any(type(cause).__name__ in _UNREACHED for cause in causes):
        return ""
    reason = "no connection in time"
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            reason = "its host name is not known"
        elif isinstance(cause, ConnectionRefusedError):
            reason = "it refuses the connection"
        elif isinstance(cause, OSError) and cause.strerror:
            reason = cause.strerror
    return f"the server cannot be reached, {reason}; check that it runs, its URL and the network"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__  # clients suppress the context, which holds the reason


def _line(error: Exception, key: str = "") -> str:
    text = " ".join((str(error) or type(error).__name__).split())
    if isinstance(error, TimeoutError):
        text = "no answer in time"
    if key:
        text = text.replace(key, "[key]")
    return text if len(text) <= 300 else f"{text[:300]}…"

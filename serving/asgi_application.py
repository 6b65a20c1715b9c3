"""The server's HTTP interface as an ASGI application, to be mounted in another one, or run by any ASGI server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote

from ..errors import DrivetrainError
from .access import AccessKeys
from .api import RequestError, StatusCode
from .config import ModelConfig
from .http import HttpRequest, HttpResponse
from .manager import ModelManager
from .metrics import ServingMetrics
from .rest import error_response
from .server import ServerOptions, configure_jax, rest_handler

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

_LOG: Final = logging.getLogger("drivetrain.serving")
_GRACE: Final = 30.0  # seconds for the requests that run


def asgi(
    models: Mapping[str, str | Path] | Sequence[ModelConfig], options: ServerOptions | None = None
) -> AsgiApplication:
    """Models as an ASGI application.

    ```python
    app = drivetrain.serving.asgi({"flights": "served/flights"})  # uvicorn module:app
    main.mount("/models", app)  # or in Starlette or FastAPI: /models/v1/models/flights:predict
    ```

    Args:
        models: Name → the folder or URL that versions are pushed to; or whole configurations.
        options: As of the server: `poll_seconds`, `timeout_seconds`, `limits.body`, `admin` (off, unless keys say who
            may), `memory_bytes`, `keys` and `cors_origins` apply; the rest is up to the ASGI server.

    Raises:
        InputError: The keys cannot be read, or a model is configured wrongly.
    """
    configs = (
        [ModelConfig(name, str(path)) for name, path in models.items()] if isinstance(models, Mapping) else [*models]
    )
    return AsgiApplication(configs, options or ServerOptions())


class AsgiApplication:
    """See `asgi`.

    It loads its models when its lifespan starts; where it is mounted, at the first request, or by `async with` in the
    lifespan of the application around it.

    Args:
        configs: The models.
        options: How to serve.
    """

    def __init__(self, configs: Sequence[ModelConfig], options: ServerOptions) -> None:
        self._keys = AccessKeys(options.keys) if options.keys is not None else None
        self._models = ModelManager(configs, poll_seconds=options.poll_seconds, most_bytes=options.memory_bytes)
        admin = self._keys is not None if options.admin is None else options.admin
        self._handler = rest_handler(self._models, ServingMetrics(), options, self._keys, admin=admin)
        self._most = options.limits.body
        self._starting: asyncio.Future[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI 3 has it."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._start()
            await self._answer(scope, receive, send)
        else:
            raise ValueError(f"drivetrain.serving.asgi answers HTTP, no {scope['type']}")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except DrivetrainError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        """Load the models, once; whoever comes meanwhile waits."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._load())
        await asyncio.shield(self._starting)

    async def _load(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, configure_jax)
        await self._models.start()
        if self._keys is not None:
            self._watching = asyncio.get_running_loop().create_task(self._keys.watch())

    async def _stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._models.stop(_GRACE)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []
        size = 0
        message: Message = {"more_body": True}
        while message.get("more_body", False):
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most:
                await _send(send, scope, _too_large(self._most))
                return
        request = HttpRequest(scope["method"], _target(scope), _headers(scope), b"".join(parts))
        answered: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        try:
            self._handler(request, partial(_settle, answered))
            answer = await answered
        except Exception:  # a fault of ours
            _LOG.exception("%s %s failed", request.method, scope["path"])
            answer = HttpResponse(500, b'{"error":"the server failed to answer"}')
        await _send(send, scope, answer)


def _settle(answered: asyncio.Future[HttpResponse], answer: HttpResponse) -> None:
    if not answered.done():  # the client may be gone
        answered.set_result(answer)


def _target(scope: Scope) -> str:
    """The path below where the application is mounted, and the query, as in a request line."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root):
        path = path[len(root) :] or "/"
    query = scope.get("query_string", b"").decode("latin-1")
    return quote(path, safe="/:") + (f"?{query}" if query else "")


def _headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _too_large(most: int) -> HttpResponse:
    return error_response(RequestError(StatusCode.INVALID_ARGUMENT, f"the body has more than {most:,} bytes"), 413)


async def _send(send: Send, scope: Scope, answer: HttpResponse) -> None:
    headers = [
        (b"content-type", answer.content_type),
        (b"content-length", str(len(answer.body)).encode()),
        *((name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in answer.headers),
    ]
    with contextlib.suppress(OSError):  # the client is gone
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})

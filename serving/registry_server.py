"""The process that answers MLflow's clients: one port, registered models read from the store, nothing changed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from .access import AccessKeys
from .api import RequestError
from .http import Connections, HttpLimits, HttpRequest, HttpResponse, Respond
from .mlflow_registry import MlflowRegistry
from .rest import error_response
from .server import bind, ended_by_signals, shown
from .tls import TlsFiles

_THREADS: Final = 4  # that read the store
_BODY: Final = 64 << 10
_GRACE: Final = 10.0
_LOG: Final = logging.getLogger("drivetrain.serving")


@dataclass(frozen=True)
class RegistryServerOptions:
    """How registered models are told of.

    Attributes:
        host: The address to listen at.
        port: 0: any that is free.
        keys: A file of who may ask (`serving.access`); None: anybody.
        tls: What the server proves itself with; None: plain text.
    """

    host: str = "127.0.0.1"
    port: int = 5000
    keys: Path | None = None
    tls: TlsFiles | None = None


def run_registry_server(models: MlflowRegistry, options: RegistryServerOptions, started: Callable[[str], None]) -> None:
    """Answer until SIGTERM or SIGINT.

    Args:
        models: What answers.
        options: How.
        started: Called with the server's address when the port is open.

    Raises:
        InputError: The port cannot be had, or a file of keys or certificates cannot be read.
    """
    keys = None if options.keys is None else AccessKeys(options.keys)
    if keys is None and options.host not in ("127.0.0.1", "::1", "localhost"):
        _LOG.warning("listening at %s without --keys: whoever reaches the port may ask", options.host)
    asyncio.run(_serve(models, options, keys, started))


async def _serve(
    models: MlflowRegistry, options: RegistryServerOptions, keys: AccessKeys | None, started: Callable[[str], None]
) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    port = bind(options.host, options.port, option="--port")
    with ThreadPoolExecutor(_THREADS, "drivetrain-registry") as threads, ended_by_signals(ended):

        def handle(request: HttpRequest, respond: Respond) -> None:
            if keys is not None and (refusal := _refusal(keys, request)) is not None:
                respond(refusal)
                return
            if request.method == "GET" and request.target in ("/", "/health"):
                respond(HttpResponse(200, b"OK", b"text/plain"))
                return
            asking = loop.run_in_executor(threads, models.answer, request.method, request.target, request.body)
            asking.add_done_callback(lambda done: respond(_response(done)))

        connections = Connections(handle, HttpLimits(body=_BODY, connections=1000))
        context = None if options.tls is None else options.tls.context()
        handshake = None if context is None else connections.limits.request_seconds
        server = await loop.create_server(connections, sock=port, ssl=context, ssl_handshake_timeout=handshake)
        watching = [loop.create_task(connections.watch())]
        if keys is not None:
            watching.append(loop.create_task(keys.watch()))
        if context is not None and options.tls is not None:
            watching.append(loop.create_task(options.tls.watch(context)))
        try:
            started(f"{'http' if context is None else 'https'}://{shown(port)}")
            await ended.wait()
        finally:
            for task in watching:
                task.cancel()
            server.close()
            await connections.drain(_GRACE)


def _refusal(keys: AccessKeys, request: HttpRequest) -> HttpResponse | None:
    """The answer to a request without a key that may ask; None of one that has it."""
    bearer, api_key = request.headers.get("authorization"), request.headers.get("x-api-key")
    try:
        key = keys.admit(() if bearer is None else (bearer,), () if api_key is None else (api_key,))
        key.allow("predict")
    except RequestError as error:
        body = {"error_code": error.code.name, "message": f"{error.message}; {error.fix or ''}".rstrip("; ")}
        return replace(error_response(error), body=json.dumps(body).encode())
    return None


def _response(answered: asyncio.Future[tuple[int, dict[str, object]]]) -> HttpResponse:
    error = answered.exception()
    if error is not None:
        _LOG.error("a request failed", exc_info=error)
        return HttpResponse(500, b'{"error_code": "INTERNAL_ERROR", "message": "the request failed"}')
    status, body = answered.result()
    return HttpResponse(status, json.dumps(body).encode())

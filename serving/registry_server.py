"""The process that answers MLflow's clients: one port, registered models read from the store, nothing changed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from .access import AccessKeys
from .api import RequestError
from .http import HttpRequest, HttpResponse
from .mlflow_registry import MlflowRegistry
from .rest import error_response
from .thread_server import ThreadServer
from .tls import TlsFiles

_THREADS: Final = 4  # that read the store
_BODY: Final = 64 << 10
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

    def at_once(request: HttpRequest) -> HttpResponse | None:
        if keys is not None and (refusal := _refusal(keys, request)) is not None:
            return refusal
        health = request.method == "GET" and request.target in ("/", "/health")
        return HttpResponse(200, b"OK", b"text/plain") if health else None

    server = ThreadServer(
        options.host,
        options.port,
        options.tls,
        _THREADS,
        _BODY,
        at_once,
        answer=partial(_answer, models),
        watching=() if keys is None else (keys.watch,),
    )
    asyncio.run(server.serve(started))


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


def _answer(models: MlflowRegistry, request: HttpRequest) -> HttpResponse:
    try:
        status, body = models.answer(request.method, request.target, request.body)
    except Exception:  # a fault of ours is no business of the client's
        _LOG.exception("a request failed")
        return HttpResponse(500, b'{"error_code": "INTERNAL_ERROR", "message": "the request failed"}')
    return HttpResponse(status, json.dumps(body).encode())

"""A gRPC server on an event loop of its own, in a thread, for clients that block."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import uvloop
from drivetrain.serving.api import Models
from drivetrain.serving.grpc_server import grpc_handler
from drivetrain.serving.http import Connections, HttpLimits
from drivetrain.serving.http2 import Http2Connection, StreamHandler
from drivetrain.serving.protos import Message, message_class

DEFAULT = HttpLimits()


class Client:
    """Calls by their full names, with messages or bytes."""

    def __init__(self, channel: grpc.Channel, port: int) -> None:
        self.channel = channel
        self.port = port

    def raw(self, method: str, content: bytes, timeout: float = 20, **options: Any) -> tuple[bytes, Any]:
        """The bytes of an answer, and the call."""
        answer, call = self.channel.unary_unary(method).with_call(content, timeout=timeout, **options)
        return answer, call

    def __call__(self, method: str, request: Message, timeout: float = 20, **options: Any) -> Message:
        """The answer to a unary call."""
        return _response_class(method).FromString(self.raw(method, request.SerializeToString(), timeout, **options)[0])

    def code(self, method: str, request: Message | bytes, timeout: float = 20, **options: Any) -> tuple[str, str]:
        """The name of the code with which a call ends, and its details."""
        content = request if isinstance(request, bytes) else request.SerializeToString()
        try:
            self.raw(method, content, timeout, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "OK", ""

    def stream(self, method: str, requests: Any, timeout: float = 20) -> Iterator[Message]:
        """The answers to a stream, or to one request that has many."""
        kind = _response_class(method)
        options = {"request_serializer": lambda request: request.SerializeToString()}
        if isinstance(requests, list | Generator):
            call = self.channel.stream_stream(method, **options)(iter(requests), timeout=timeout)
        else:
            call = self.channel.unary_stream(method, **options)(requests, timeout=timeout)
        try:
            for answer in call:
                yield kind.FromString(answer)
        finally:
            call.cancel()


def _response_class(method: str) -> Any:
    from drivetrain.serving.protos import POOL

    service, name = method.strip("/").split("/")
    return message_class(POOL.FindServiceByName(service).methods_by_name[name].output_type.full_name)


@contextmanager
def grpc_running(models: Models, tls: ssl.SSLContext | None = None, **options: Any) -> Iterator[Client]:
    """A client of a server of these models; with TLS the caller opens channels of its own."""
    with handler_running(grpc_handler(models, **options), tls, options.get("limits", HttpLimits())) as client:
        yield client


@contextmanager
def handler_running(
    handler: StreamHandler, tls: ssl.SSLContext | None = None, limits: HttpLimits = DEFAULT, path: Path | None = None
) -> Iterator[Client]:
    """A client of a server whose calls a handler takes, at a free port or at a path."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[asyncio.AbstractServer, Connections[Http2Connection], asyncio.Task[None]]:
        connections = Connections(partial(Http2Connection, handler), limits)
        if path is not None:
            server = await loop.create_unix_server(connections, str(path), ssl=tls)
        else:
            server = await loop.create_server(connections, "127.0.0.1", 0, ssl=tls)
        return server, connections, loop.create_task(connections.watch())

    async def stop() -> None:
        watching.cancel()
        server.close()
        await connections.drain(5)
        assert not connections.open
        assert not [task for task in asyncio.all_tasks() if task not in (watching, asyncio.current_task())]

    try:
        server, connections, watching = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
        port = 0 if path is not None else server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # a Server's
        target = f"127.0.0.1:{port}" if path is None else f"unix:{path}"
        try:
            with grpc.insecure_channel(target, [("grpc.max_receive_message_length", -1)]) as channel:
                yield Client(channel, port)
        finally:  # a loop of uvloop's that is closed with a server waits for ever
            asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

"""A gRPC server on an event loop of its own, in a thread, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
from drivetrain.serving.api import Models
from drivetrain.serving.grpc_server import bind, grpc_server
from drivetrain.serving.protos import Message, message_class


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
def grpc_running(models: Models, credentials: grpc.ServerCredentials | None = None, **options: Any) -> Iterator[Client]:
    """A client of a server of these models; with credentials the caller opens channels of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[grpc.aio.Server, int]:
        server = grpc_server(models, **options)
        port = bind(server, "127.0.0.1:0", credentials)
        await server.start()
        return server, port

    try:
        server, port = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield Client(channel, port)
        asyncio.run_coroutine_threadsafe(server.stop(None), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

"""A server on an event loop of its own, in a thread; without models 404 means that a request was let in."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import grpc
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.server import Listening, ServerOptions, bind, serve


@dataclass
class OpenServer:
    """Where it listens."""

    rest: str
    grpc: str

    @property
    def address(self) -> str:
        """Of its HTTP interface, as that of a `RunningServer`."""
        return self.rest

    def ask(
        self,
        method: str,
        path: str,
        headers: list[tuple[str, str]] | None = None,
        *,
        body: bytes = b"",
        tls: ssl.SSLContext | None = None,
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON of an answer to a request with exactly these headers."""
        parts = urlsplit(self.rest)
        connection = (
            http.client.HTTPSConnection(str(parts.hostname), parts.port, timeout=10, context=tls)
            if parts.scheme == "https"
            else http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
        )
        try:
            connection.putrequest(method, path)
            for name, value in [*(headers or []), ("content-length", str(len(body)))]:
                connection.putheader(name, value.encode("latin-1"))
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            known = {name.lower(): value for name, value in answer.getheaders()}
            is_json = content and known["content-type"] == "application/json"
            return answer.status, known, json.loads(content) if is_json else content
        finally:
            connection.close()

    def call(
        self,
        method: str,
        content: bytes = b"",
        metadata: tuple[tuple[str, str], ...] = (),
        credentials: Any = None,
    ) -> str:
        """The name of the code with which a gRPC call ends."""
        channel = grpc.secure_channel(self.grpc, credentials) if credentials else grpc.insecure_channel(self.grpc)
        with channel:
            try:
                channel.unary_unary(method)(content, timeout=10, metadata=metadata)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"


@contextmanager
def open_server(options: ServerOptions, configs: Sequence[ModelConfig] = ()) -> Iterator[OpenServer]:
    """A server of these models, at free ports."""
    options = replace(options, rest_port=0, grpc_port=0)
    loop = asyncio.new_event_loop()
    started = threading.Event()
    up: list[Listening] = []

    def note(listening: Listening) -> None:
        up.append(listening)
        started.set()

    task = loop.create_task(serve(configs, options, bind("127.0.0.1", 0), note))

    def work() -> None:
        try:
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        finally:
            started.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert started.wait(60), "the server did not start"
        assert up, "the server ended"
        yield OpenServer(up[0].address, str(up[0].grpc_address))
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()

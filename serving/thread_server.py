"""A port whose requests threads answer, until a signal: what the servers beside the model server run on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from .http import Connections, HttpConnection, HttpLimits, HttpRequest, HttpResponse, Respond
from .server import bind, ended_by_signals, shown
from .tls import TlsFiles

_CONNECTIONS: Final = 1000
_GRACE: Final = 10.0


@dataclass(frozen=True)
class ThreadServer:
    """A port and how its requests are answered.

    Attributes:
        host: The address to listen at.
        port: 0: any that is free.
        tls: What the server proves itself with; None: plain text.
        threads: How many requests are answered at once.
        largest_body: Bytes of a request's body; a larger one is refused.
        at_once: The answer to a request that needs no thread; None where it does.
        answer: The answer of a thread; it may wait, and raises nothing.
        admit: See `HttpConnection`.
        watching: What runs beside it, as the watch over a file of keys.
    """

    host: str
    port: int
    tls: TlsFiles | None
    threads: int
    largest_body: int
    at_once: Callable[[HttpRequest], HttpResponse | None]
    answer: Callable[[HttpRequest], HttpResponse]
    admit: Callable[[HttpRequest], HttpResponse | None] | None = None
    watching: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()

    async def serve(self, started: Callable[[str], None]) -> None:
        """Answer until SIGTERM or SIGINT; those at work then have ten seconds.

        Args:
            started: Called with the server's address when the port is open.

        Raises:
            InputError: The port cannot be had.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        port = bind(self.host, self.port, option="--port")
        with ThreadPoolExecutor(self.threads, "drivetrain-server") as threads, ended_by_signals(ended):

            def handle(request: HttpRequest, respond: Respond) -> None:
                if (response := self.at_once(request)) is not None:
                    respond(response)
                    return
                answering = loop.run_in_executor(threads, self.answer, request)
                answering.add_done_callback(lambda done: respond(done.result()))

            limits = HttpLimits(body=self.largest_body, connections=_CONNECTIONS)
            connections = Connections(partial(HttpConnection, handle, admit=self.admit), limits)
            context: ssl.SSLContext | None = None if self.tls is None else self.tls.context()
            handshake = None if context is None else connections.limits.request_seconds
            server = await loop.create_server(connections, sock=port, ssl=context, ssl_handshake_timeout=handshake)
            watching = [loop.create_task(watch()) for watch in (connections.watch, *self.watching)]
            if context is not None and self.tls is not None:
                watching.append(loop.create_task(self.tls.watch(context)))
            try:
                started(f"{'http' if context is None else 'https'}://{shown(port)}")
                await ended.wait()
            finally:
                for task in watching:
                    task.cancel()
                server.close()
                await connections.drain(_GRACE)

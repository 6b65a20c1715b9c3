"""Ask a server from an event loop: many requests at once, over connections that are kept."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from .client import context_of
from .client_steps import (
    MOST_BYTES,
    ClientAnswer,
    ClientCall,
    Columns,
    ModelAddress,
    ModelSteps,
    Prediction,
    Steps,
    T,
    Transport,
    too_long,
)

_CHUNK: Final = 1000  # rows of a request
_READ: Final = 1 << 16
_LONGEST_HEAD: Final = 1 << 16


class AsyncClient:
    """One model of a server, for any number of tasks of one event loop.

    ```python
    async with AsyncClient("http://127.0.0.1:8501", "flights") as client:
        answers = await asyncio.gather(*(client.predict([row]) for row in rows))
    ```

    Args:
        url: As `Client` takes it, and all that follow.
        model: Likewise.
        version: Likewise.
        label: Likewise.
        key: Likewise.
        api_key: Likewise.
        tls: Likewise.
        timeout: Likewise.
        transport: Likewise.
        retries: Likewise.
        connections: How many at once over HTTP; further requests wait. gRPC has a single one.

    Raises:
        InputError: The URL is not a server's, or `tls` is of another transport.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        key: str | None = None,
        api_key: str | None = None,
        tls: Any = None,  # Any: grpc's credentials have no types
        timeout: float = 30.0,
        transport: Transport = "json",
        retries: int = 3,
        connections: int = 64,
    ) -> None:
        address = ModelAddress.of(url, model, version, label, key, api_key)
        self._steps = ModelSteps(address, transport, retries)
        self._reading = asyncio.Lock()
        self._connections: _AsyncConnections = (
            _GrpcChannel(address, tls, timeout)
            if transport == "grpc"
            else _HttpConnections(address, tls, timeout, connections)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def predict(self, rows: Sequence[Mapping[str, Any]] | Columns, *, signature: str | None = None) -> Prediction:
        """As `Client.predict`."""
        async with self._reading:
            if not self._steps.has_signatures:
                await self._run(self._steps.read_signatures())
        return await self._run(self._steps.predict(rows, signature))

    async def predict_all(
        self, rows: Sequence[Mapping[str, Any]], *, signature: str | None = None
    ) -> AsyncIterator[Prediction]:
        """`predict` for any number of rows, a thousand at a time."""
        for start in range(0, len(rows), _CHUNK):
            yield await self.predict(rows[start : start + _CHUNK], signature=signature)

    async def metadata(self) -> dict[str, Any]:  # Any: JSON
        """The model's signatures, as TensorFlow Serving describes them."""
        return await self._run(self._steps.metadata())

    async def status(self) -> list[dict[str, Any]]:  # Any: JSON
        """The model's versions: `version`, `state`, and the `status` of loading it."""
        return await self._run(self._steps.status())

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    step = next(steps)
                    continue
                try:
                    answer = await self._connections.exchange(step)
                except (OSError, EOFError) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result


class _AsyncConnections(Protocol):
    async def exchange(self, call: ClientCall) -> ClientAnswer: ...

    async def close(self) -> None: ...


class _HttpConnections:
    """Connections over which nothing is on its way wait to be used again, the last one first."""

    def __init__(self, address: ModelAddress, tls: Any, timeout: float, most: int) -> None:
        parts = urlsplit(address.url)
        self._host, self._prefix = parts.hostname or "", parts.path
        self._context = (context_of(tls) or ssl.create_default_context()) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._context else 80)
        self._head = "".join(
            f"{name}: {value}\r\n" for name, value in {"host": parts.netloc, **address.headers}.items()
        )
        self._timeout = timeout
        self._free = asyncio.Semaphore(most)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()

    async def exchange(self, call: ClientCall) -> ClientAnswer:
        async with self._free, asyncio.timeout(self._timeout):
            while self._idle:
                # One that was kept may have been closed meanwhile; predicting twice does no harm.
                try:
                    return await self._over(*self._idle.pop(), call)
                except (ConnectionError, EOFError):
                    continue
            return await self._over(*await asyncio.open_connection(self._host, self._port, ssl=self._context), call)

    async def _over(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: ClientCall) -> ClientAnswer:
        try:
            lines = "".join(f"{name}: {value}\r\n" for name, value in call.headers)
            if call.body is not None:
                lines += f"content-length: {len(call.body)}\r\n"
            method = "GET" if call.body is None else "POST"
            head = f"{method} {self._prefix}{call.target} HTTP/1.1\r\n{self._head}{lines}\r\n"
            writer.write(head.encode("latin-1", "replace") + (call.body or b""))
            answer, keep = await _read_answer(reader)
        except BaseException:
            writer.close()
            raise
        if keep:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return answer


class _AnswerParts:
    """What the parser calls."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.has_head = False
        self.whole = False

    def on_message_begin(self) -> None:
        if self.whole:
            raise ValueError("another answer, which nobody has asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.whole = True


async def _read_answer(reader: asyncio.StreamReader) -> tuple[ClientAnswer, bool]:
    """An answer, and whether its connection stays open."""
    import httptools

    parts = _AnswerParts()
    parser = httptools.HttpResponseParser(parts)
    received = 0
    while not parts.whole:
        data = await reader.read(_READ)
        if not data:
            raise EOFError("the server closed the connection")
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the answer is no HTTP: {error}") from error
        received += len(data)
        if received > (MOST_BYTES if parts.has_head else _LONGEST_HEAD):
            raise too_long()
    answer = ClientAnswer(parser.get_status_code(), parts.headers, b"".join(parts.body))
    # The parser's own should_keep_alive() says no once an answer is whole.
    keep = parser.get_http_version() == "1.1" and "close" not in parts.headers.get("connection", "").lower()
    return answer, keep


class _GrpcChannel:
    def __init__(self, address: ModelAddress, tls: Any, timeout: float) -> None:
        import grpc.aio

        from .grpc_calls import channel_options, credentials_of, host_of

        credentials = credentials_of(address, tls)
        self._channel = (
            grpc.aio.insecure_channel(host_of(address), channel_options())
            if credentials is None
            else grpc.aio.secure_channel(host_of(address), credentials, channel_options())
        )
        self._metadata = tuple(address.headers.items())
        self._timeout = timeout

    async def close(self) -> None:
        await self._channel.close()

    async def exchange(self, call: ClientCall) -> ClientAnswer:
        import grpc

        from .grpc_calls import answer_of, failure_of

        sent = self._channel.unary_unary(call.target)(call.body, timeout=self._timeout, metadata=self._metadata)
        try:
            return answer_of(await sent, await sent.trailing_metadata())
        except grpc.RpcError as error:
            return failure_of(error)

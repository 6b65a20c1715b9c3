"""Ask a server: rows in, predictions out, by HTTP/1.1 or gRPC over one connection that is kept."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from ..errors import InputError
from ..paced_http import PacedResponse
from .client_steps import (
    MOST_BYTES,
    ClientAnswer,
    ClientCall,
    Columns,
    ModelAddress,
    ModelSteps,
    Prediction,
    ServerError,
    Steps,
    T,
    Transport,
    too_long,
)

__all__ = ["Client", "Prediction", "ServerError"]

_CHUNK: Final = 1000  # rows of a request
_BLOCK: Final = 1 << 20


class Client:
    """One model of a server.

    ```python
    with Client("http://127.0.0.1:8501", "flights") as client:
        client.predict([{"carrier": "UA", "hour": 17}]).rows
    ```

    Rows are checked against the model's metadata, which is read before the first of them is sent. A request is tried
    again where the server refuses the connection or answers 503, after 0.1 s, 0.2 s, 0.4 s, or when the server says.

    Not for several threads at once: each has its own.

    Args:
        url: The server, "http://host:port"; of its gRPC port where that is the transport.
        model: What the server calls the model.
        version: Its number; None: the newest, or what the server's split decides.
        label: Or a name for one.
        key: What keeps this caller on one side of a split.
        api_key: What the server lets this caller in by; None: what DRIVETRAIN_API_KEY holds, if it does.
        tls: For https: an `ssl.SSLContext`, of `ssl.create_default_context(cafile=...)` say; for gRPC a
            `grpc.ssl_channel_credentials(...)`; None: the usual roots.
        timeout: Seconds until an answer is given up; each try has them.
        transport: "json"; "binary": tensors over HTTP; or "grpc". The last two need the extra `serving`, and pay for
            arrays and many rows.
        retries: How often a request is tried again.

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
    ) -> None:
        address = ModelAddress.of(url, model, version, label, key, api_key)
        self._steps = ModelSteps(address, transport, retries)
        self._connection: _Connection = (
            _GrpcConnection(address, tls, timeout) if transport == "grpc" else _HttpConnection(address, tls, timeout)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def predict(self, rows: Sequence[Mapping[str, Any]] | Columns, *, signature: str | None = None) -> Prediction:
        """The predictions for some rows, each a mapping from input to value (None and NaN: missing).

        Args:
            rows: Or columns: a mapping from input to one value a row, of lists or arrays.
            signature: Which; its default unless given.

        Raises:
            InputError: A value is not what the model reads, or cannot travel: nothing was sent.
            ServerError: The server refuses the rows, has no such model, or does not answer.
        """
        return self._run(self._steps.predict(rows, signature))

    def predict_all(self, rows: Sequence[Mapping[str, Any]], *, signature: str | None = None) -> Iterator[Prediction]:
        """`predict` for any number of rows, a thousand at a time."""
        for start in range(0, len(rows), _CHUNK):
            yield self.predict(rows[start : start + _CHUNK], signature=signature)

    def metadata(self) -> dict[str, Any]:  # Any: JSON
        """The model's signatures, as TensorFlow Serving describes them."""
        return self._run(self._steps.metadata())

    def status(self) -> list[dict[str, Any]]:  # Any: JSON
        """The model's versions: `version`, `state`, and the `status` of loading it."""
        return self._run(self._steps.status())

    def load(self) -> None:
        """Have the server look for the model's versions now, and load them; needs a key that may `admin`.

        Raises:
            InputError: The transport is gRPC.
            ServerError: It does not let this caller, or none of the model's versions can be used (503).
        """
        self._run(self._steps.load())

    def digest(self, version: int) -> str:
        """The digest of the bundle that the server has as a version; "" from a release that does not say.

        Raises:
            InputError: The transport is gRPC.
        """
        return self._run(self._steps.digest(version))

    def traffic(self) -> dict[str, Any]:  # Any: JSON
        """Which version gets which share of the requests, and how far a rollout is.

        Raises:
            InputError: The transport is gRPC.
        """
        return self._run(self._steps.traffic())

    def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, float):
                    time.sleep(step)
                    step = next(steps)
                    continue
                try:
                    answer = self._connection.exchange(step)
                except (OSError, http.client.HTTPException) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result


class _Connection(Protocol):
    def exchange(self, call: ClientCall) -> ClientAnswer: ...

    def close(self) -> None: ...


class _HttpConnection:
    def __init__(self, address: ModelAddress, tls: Any, timeout: float) -> None:
        parts = urlsplit(address.url)
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout, context=context_of(tls))
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        )
        self._connection.response_class = PacedResponse  # a server cannot hold the client for ever
        self._prefix = parts.path
        self._headers = address.headers
        self._timeout = timeout

    def close(self) -> None:
        self._connection.close()

    def exchange(self, call: ClientCall) -> ClientAnswer:
        method = "GET" if call.body is None else "POST"
        for attempt in (1, 2):
            fresh = self._connection.sock is None
            if self._connection.sock is not None:
                self._connection.sock.settimeout(self._timeout)  # the answer before has shortened it
            try:
                self._connection.request(
                    method, f"{self._prefix}{call.target}", call.body, {**self._headers, **dict(call.headers)}
                )
                response = self._connection.getresponse()
                headers = {key.lower(): value for key, value in response.getheaders()}
                return ClientAnswer(response.status, headers, _content_of(response))
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # A connection that was kept may have been closed meanwhile; predicting twice does no harm.
                self.close()
                if fresh or attempt == 2:
                    raise
            except (OSError, http.client.HTTPException, ServerError):
                self.close()
                raise
        raise AssertionError("unreachable")


def _content_of(response: http.client.HTTPResponse) -> bytes:
    assert isinstance(response, PacedResponse)
    content = bytearray()
    while block := response.next_block(_BLOCK):
        content += block
        if len(content) > MOST_BYTES:
            raise too_long()
    if response.length:  # a lost connection looks like the end
        raise ConnectionError(f"{response.length:,} bytes of the answer did not come")
    return bytes(content)


class _GrpcConnection:
    def __init__(self, address: ModelAddress, tls: Any, timeout: float) -> None:
        import grpc

        from .grpc_calls import channel_options, credentials_of, host_of

        credentials = credentials_of(address, tls)
        self._channel = (
            grpc.insecure_channel(host_of(address), channel_options())
            if credentials is None
            else grpc.secure_channel(host_of(address), credentials, channel_options())
        )
        self._metadata = tuple(address.headers.items())
        self._timeout = timeout

    def close(self) -> None:
        self._channel.close()

    def exchange(self, call: ClientCall) -> ClientAnswer:
        import grpc

        from .grpc_calls import answer_of, failure_of

        try:
            body, sent = self._channel.unary_unary(call.target).with_call(
                call.body, timeout=self._timeout, metadata=self._metadata
            )
        except grpc.RpcError as error:
            return failure_of(error)
        return answer_of(body, sent.trailing_metadata())


def context_of(tls: Any) -> ssl.SSLContext | None:
    """What users gave for HTTP over TLS.

    Raises:
        InputError: It is of gRPC.
    """
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    raise InputError("tls is no ssl.SSLContext", fix="give ssl.create_default_context(cafile=…)")

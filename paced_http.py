"""HTTP requests whose answers have to come at a pace: a server cannot hold whoever asks it for ever.

A timeout of a socket starts anew with each byte. So a server that sends a byte now and then, `100 Continue` without
end, or trailers without end, would never be given up. Here each read of the socket has no more time than is left for
the part of the content that is due.
"""

from __future__ import annotations

import io
import time
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from socket import socket
from typing import TYPE_CHECKING, Any, Final
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

if TYPE_CHECKING:
    from ssl import SSLContext

    from _typeshed import WriteableBuffer

LEAST: Final = 64 << 10
"""Bytes of content that have to come in each period, unless the answer ends."""


class _Pace:
    """How long the next bytes of content may take.

    Args:
        period: Seconds.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self._begin = time.monotonic()
        self._bytes = 0

    def count(self, size: int) -> None:
        """Take note of so many bytes that came; enough of them begin the period anew."""
        self._bytes += size
        if self._bytes >= LEAST:
            self._begin, self._bytes = time.monotonic(), 0

    def left(self) -> float:
        """Seconds.

        Raises:
            TimeoutError: None are.
        """
        left = self._begin + self._period - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{self._bytes:,} bytes of content came in {self._period:g} s, not {LEAST:,}")
        return left


class _PacedSocket(io.RawIOBase):
    """What a response is read from."""

    def __init__(self, connection: socket, raw: io.RawIOBase, pace: _Pace) -> None:
        self._connection = connection
        self._raw = raw
        self._pace = pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        self._connection.settimeout(self._pace.left())
        try:
            return self._raw.readinto(buffer)
        except TimeoutError:
            self._pace.left()
            raise

    def close(self) -> None:
        self._raw.close()
        super().close()


class PacedResponse(HTTPResponse):
    """A response whose reads end in an OSError where its content comes too slowly."""

    def __init__(self, sock: socket, *args: Any, **named: Any) -> None:  # Any: as HTTPResponse has them
        super().__init__(sock, *args, **named)
        self._pace = _Pace(sock.gettimeout() or 60.0)
        self.fp = io.BufferedReader(_PacedSocket(sock, self.fp.detach(), self._pace))

    def next_block(self, most: int) -> bytes:
        """The next bytes of the content, as many as are there; none at its end."""
        block = self.read1(most)
        self._pace.count(len(block))
        if not block:
            self.close()  # read1 itself does so from Python 3.11.8 and 3.12.2 on: an open one keeps the connection
        return block


class _PacedConnection(HTTPConnection):
    response_class = PacedResponse


class _PacedSecureConnection(HTTPSConnection):
    response_class = PacedResponse


class _Handler(HTTPHandler):
    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_PacedConnection, req)


class _SecureHandler(HTTPSHandler):
    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_PacedSecureConnection, req, context=self._context)  # type: ignore[attr-defined]


class _NoRedirection(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:  # Any: as HTTPRedirectHandler has them
        return None  # then the answer is an HTTPError


def opener(*, context: SSLContext | None = None, redirects: bool = True) -> OpenerDirector:
    """What opens requests as `urllib.request.urlopen` does; a request's timeout is the period of its answer.

    Args:
        context: What is trusted; what the machine trusts where None.
        redirects: Whether redirections are followed; else one is an HTTPError.
    """
    handlers = () if redirects else (_NoRedirection(),)
    return build_opener(_Handler, _SecureHandler(context=context), *handlers)

"""An S3 that is not ours on loopback: moto's server, which counts what it is asked, can be stopped, and can fail."""

from __future__ import annotations

import atexit
import io
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


class S3:
    """The server.

    Attributes:
        asked: Method and path with query of every request, in order.
        before: Called with these before a request is answered; may wait, or give a status to answer with instead.
    """

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import create_backend_app

        # Any: of no types. S3 alone: to choose among services, moto looks at hundreds of folders at each request.
        self._app: Any = create_backend_app("s3")
        self.asked: list[str] = []
        self.before: Callable[[str], int | None] = lambda request: None
        self._server: Any = None
        self._port = 0
        self._kept: socket.socket | None = None
        self.start()

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Answer, with all that was stored before."""
        from werkzeug.serving import WSGIRequestHandler, make_server
        from werkzeug.test import run_wsgi_app

        connections: set[socket.socket] = set()
        ended = threading.Event()

        class Handler(WSGIRequestHandler):
            """Keeps connections open, as S3 does; werkzeug's opens one, and a thread, for each request."""

            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and body are sent one after the other

            def setup(self) -> None:
                super().setup()
                connections.add(self.connection)

            def finish(self) -> None:
                connections.discard(self.connection)
                super().finish()

            def run_wsgi(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = self.rfile.read(length)
                if len(content) < length or ended.is_set():  # the client is dead, or the server
                    self.close_connection = True
                    return
                environ = {**self.make_environ(), "wsgi.input": io.BytesIO(content)}
                parts, status, headers = run_wsgi_app(self.server.app, environ, buffered=True)
                answer = b"".join(parts)
                code, _, reason = status.partition(" ")
                self.send_response(int(code), reason)
                for name, value in headers:
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log(self, *_: object) -> None:
                pass

        self._server = make_server("127.0.0.1", self._port, self._answer, threaded=True, request_handler=Handler)
        self._ended, self._connections = ended, connections
        self._port = self._server.server_port
        if self._kept is not None:
            self._kept.close()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections, and forget nothing."""
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in tuple(self._connections):
            with suppress(OSError):  # it has just been closed
                connection.shutdown(socket.SHUT_RDWR)
        self._kept = socket.socket()  # so that nobody else gets the port meanwhile
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", self._port))

    def puts(self) -> list[str]:
        """The keys of the files that were put, or of which a part was, without their buckets."""
        paths = [request.partition(" ")[2].lstrip("/") for request in self.asked if request.startswith("PUT ")]
        return [path.partition("/")[2].partition("?")[0] for path in paths if "/" in path]

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        query = environ.get("QUERY_STRING", "")
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}{'?' + query if query else ''}"
        self.asked.append(request)
        status = self.before(request)
        if status is None:
            answer: Iterable[bytes] = self._app(environ, start_response)
            return answer
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(f"{status} Told", [("Content-Length", "0")])
        return [b""]


@cache
def _server() -> S3:
    server = S3()
    atexit.register(server.stop)
    return server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    """One for all tests of all modules: its port must not change, as s3fs keeps its connections."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    import botocore.useragent  # type: ignore[import-untyped]

    # For each request botocore looks at 88 short texts letter by letter, which are always the same.
    clean: Any = botocore.useragent.sanitize_user_agent_string_component
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.useragent, clean.__name__, cache(clean))
        yield _server()


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """The server, for this process and those that it starts."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # of botocore; ours are what is tested
    s3_server.asked.clear()
    yield s3_server
    s3_server.before = lambda request: None


@pytest.fixture
def bucket(s3: S3) -> str:
    """The URL of a new bucket."""
    import fsspec  # type: ignore[import-untyped]

    name = f"bucket-{secrets.token_hex(4)}"
    fsspec.filesystem("s3").mkdir(name)
    s3.asked.clear()
    return f"s3://{name}"

"""A web server and a mail server on loopback, which keep what they get and answer as they are told."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class WebReceiver:
    """What came by HTTP, and what is answered.

    Attributes:
        url: Its address.
        requests: Path, headers and body of each request.
        answers: Statuses of the next requests, then 200; "hang" does not answer.
        headers: What is answered beside.
    """

    url: str = ""
    requests: list[tuple[str, Mapping[str, str], Any]] = field(default_factory=list)
    answers: list[int | str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.requests]

    @property
    def runs(self) -> list[str]:
        """The run of each event, message by message."""
        return [event["run"] for body in self.bodies for event in body["events"]]


@contextmanager
def web_receiver() -> Iterator[WebReceiver]:
    receiver, lock = WebReceiver(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                receiver.requests.append((self.path, dict(self.headers), body))
                answer = receiver.answers.pop(0) if receiver.answers else 200
            if answer == "hang":
                receiver.over.wait(60)
                return
            with suppress(OSError):
                self.send_response(
                    int(answer), f"{self.path} {self.headers.get('Authorization', '')}"
                )  # an indiscreet server
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


@dataclass
class MailReceiver:
    """What came by SMTP (RFC 5321), and what is answered.

    Attributes:
        port: Its port.
        letters: Each letter with its envelope's readers.
        logins: What was sent to log in, and whether that was encrypted.
        answers: What the next commands of a name are answered, then what is usual: "RCPT" → ["550 no"].
        encrypted: Whether each letter came over TLS.
    """

    port: int = 0
    letters: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    logins: list[tuple[str, bool]] = field(default_factory=list)
    answers: dict[str, list[str]] = field(default_factory=dict)
    encrypted: list[bool] = field(default_factory=list)


@contextmanager
def mail_receiver(certificate: tuple[Path, Path] | None = None, *, tls: bool = False) -> Iterator[MailReceiver]:
    """A mail server; with a certificate it offers STARTTLS, or speaks TLS from the beginning."""
    receiver = MailReceiver()
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)

    class Handler(socketserver.StreamRequestHandler):
        encrypted = False

        def encrypt(self) -> None:
            assert context is not None
            self.request = context.wrap_socket(self.request, server_side=True)
            self.rfile, self.wfile, self.encrypted = self.request.makefile("rb"), self.request.makefile("wb", 0), True

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def handle(self) -> None:
            with suppress(OSError):
                if tls:
                    self.encrypt()
                self.converse()
            if self.encrypted:
                self.rfile.close()
                self.wfile.close()
                self.request.close()

        def converse(self) -> None:
            readers: list[str] = []
            self.say("220 mail")
            while line := self.rfile.readline().decode().strip():
                command = line.split()[0].upper()
                if scripted := receiver.answers.get(command):
                    answer = scripted.pop(0)
                    if answer == "hang":
                        time.sleep(60)
                    self.say(answer)
                elif command == "EHLO":
                    more = ["STARTTLS"] if context and not self.encrypted else []
                    names = ["mail", "AUTH PLAIN", *more]
                    self.say("\r\n".join(f"250{'-' if name != names[-1] else ' '}{name}" for name in names))
                elif command == "STARTTLS":
                    self.say("220 go on")
                    self.encrypt()
                elif command == "AUTH":
                    receiver.logins.append((line.split()[2], self.encrypted))
                    self.say("235 welcome")
                elif command == "RCPT":
                    readers.append(line.partition("<")[2].rstrip(">"))
                    self.say("250 ok")
                elif command == "DATA":
                    self.say("354 go on")
                    lines: list[bytes] = []
                    while (data := self.rfile.readline()) != b".\r\n":
                        lines.append(data.removeprefix(b"."))
                    letter = message_from_bytes(b"".join(lines), policy=policy.default)
                    receiver.letters.append((readers, letter))
                    receiver.encrypted.append(self.encrypted)
                    readers = []
                    self.say("250 ok")
                elif command == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


Write = Callable[..., Path]

"""A client of HTTP/2 that sends whatever frames a test wants, in order or not; headers by hpack."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass, field

from drivetrain.serving.http2 import PREFACE
from hpack import Decoder, Encoder

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 0x1, 0x1, 0x4, 0x8, 0x20
REQUEST = (
    (":method", "POST"), (":scheme", "http"), (":path", "/echo"), (":authority", "a"), ("content-type", "text/plain")
)  # fmt: skip


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int | None = None) -> bytes:
    """A frame, of which the length may be a lie."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(**values: int) -> bytes:
    """A SETTINGS frame, each named by `s` and its number."""
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", int(name[1:]), each) for name, each in values.items()))


def window_update(size: int, stream: int = 0) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


@dataclass
class Frame:
    """A frame that came."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """Of an RST_STREAM or a GOAWAY."""
        return int.from_bytes(self.payload[-4:] if self.kind == RST_STREAM else self.payload[4:8], "big")


@dataclass
class FrameClient:
    """A connection. Its server's settings are not read before frames are."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    encoder: Encoder = field(default_factory=Encoder)
    decoder: Decoder = field(default_factory=Decoder)
    closed: bool = False

    @classmethod
    async def open(cls, port: int, *, greet: bool = True) -> FrameClient:
        """A connection, which has said that it speaks HTTP/2."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        if greet:
            client.send(PREFACE + settings())
        return client

    def send(self, *data: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(b"".join(data))

    def block(self, *fields: tuple[str, str]) -> bytes:
        """A header block."""
        return self.encoder.encode(fields)

    def request(self, stream: int, flags: int = END_STREAM, fields: tuple[tuple[str, str], ...] = REQUEST) -> bytes:
        """A HEADERS frame."""
        return frame(HEADERS, flags | END_HEADERS, stream, self.block(*fields))

    async def read(self, seconds: float = 5.0) -> Frame | None:
        """The next frame; None: the connection is closed, or nothing comes."""
        try:
            head = await asyncio.wait_for(self.reader.readexactly(9), seconds)
            return Frame(head[3], head[4], int.from_bytes(head[5:], "big"), await self._payload(head))
        except TimeoutError:
            return None
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed = True
            return None

    async def _payload(self, head: bytes) -> bytes:
        return await self.reader.readexactly(int.from_bytes(head[:3], "big"))

    async def until(self, kind: int, stream: int | None = None) -> Frame:
        """The next frame of a kind, those before it left out."""
        while (each := await self.read()) is not None:
            if each.kind == kind and stream in (None, each.stream):
                return each
        raise AssertionError(f"no frame of kind {kind} came")

    async def end(self) -> list[Frame]:
        """Every frame until the server closes."""
        frames: list[Frame] = []
        while (each := await self.read()) is not None:
            frames.append(each)
        assert self.closed, "the server did not close"
        await self.close()
        return frames

    async def ping(self) -> list[Frame]:
        """The frames that come before the answer to a ping: the server has taken all that was sent."""
        self.send(frame(PING, payload=b"12345678"))
        frames: list[Frame] = []
        while (each := await self.read()) is not None:
            if each.kind == PING and each.flags & ACK and each.payload == b"12345678":
                return frames
            frames.append(each)
        raise AssertionError(f"no answer to a ping came, but {frames}")

    async def body(self, stream: int) -> tuple[dict[bytes, bytes], bytes]:
        """The header fields of an answer with those behind it, and its body."""
        fields: dict[bytes, bytes] = {}
        body = b""
        while (each := await self.read()) is not None:
            if each.kind == HEADERS:
                decoded = self.decoder.decode(each.payload, raw=True)
                if each.stream == stream:
                    fields.update(decoded)
            elif each.kind == DATA and each.stream == stream:
                body += each.payload
            assert each.kind != GOAWAY, each
            if each.stream == stream and (each.kind == RST_STREAM or each.flags & END_STREAM):
                break
        return fields, body

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

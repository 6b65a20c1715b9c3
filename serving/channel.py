"""Questions and answers between two processes over a socket, in JSON with its length before it; both ends may ask."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec

from .api import RequestError, StatusCode
from .batching import as_request_error

AnswerQuestion: TypeAlias = Callable[[str, Any], Awaitable[Any]]
"""What an end answers: the name of the question and its value, both JSON, for JSON."""

_LENGTH: Final = struct.Struct("<I")


class Channel:
    """One end of the socket, to be opened in the event loop that it is used in.

    Args:
        answer: Answers what the other end asks; a RequestError is raised there.
    """

    def __init__(self, answer: AnswerQuestion) -> None:
        self._answer = answer
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, end: socket.socket) -> asyncio.Task[None]:
        """Start to listen.

        Returns:
            A task that ends when the other end is gone.
        """
        reader, self._writer = await asyncio.open_unix_connection(sock=end)
        return asyncio.get_running_loop().create_task(self._listen(reader))

    async def ask(self, question: str, value: Any = None) -> Any:
        """The other end's answer.

        Raises:
            RequestError: What it raised.
            ConnectionError: It is gone.
        """
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"number": number, "question": question, "value": value})
            return await future
        finally:
            del self._waiting[number]

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                message = msgspec.json.decode(await reader.readexactly(length))
                if "question" in message:
                    task = asyncio.get_running_loop().create_task(self._reply(message))
                    self._answering.add(task)  # a loop alone does not keep its tasks
                    task.add_done_callback(self._answering.discard)
                else:
                    self._settle(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionError("the other process has ended"))
            if self._writer is not None:
                self._writer.close()

    async def _reply(self, message: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"number": message["number"]}
        try:
            answer["value"] = await self._answer(message["question"], message["value"])
        except Exception as error:
            refusal = as_request_error(error)
            answer["error"] = [int(refusal.code), refusal.message, refusal.fix]
        with contextlib.suppress(ConnectionError):  # whoever asked is gone
            self._send(answer)

    def _settle(self, message: dict[str, Any]) -> None:
        future = self._waiting.get(message["number"])
        if future is None or future.done():
            return
        if "error" in message:
            code, text, fix = message["error"]
            future.set_exception(RequestError(StatusCode(code), text, fix=fix))
        else:
            future.set_result(message["value"])

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is None or self._writer.is_closing():
            raise ConnectionError("the other process has ended")
        data = msgspec.json.encode(message)
        self._writer.write(_LENGTH.pack(len(data)) + data)

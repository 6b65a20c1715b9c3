"""A process of its own for what is not trusted: limits on time, memory and files; asked by messages, never left behind.

The child is this interpreter, started anew on `child_main`. It answers one request after the other. It ends when it
takes longer than its limits, when whoever asks is interrupted or gives it up, and when the process that started it ends
in whatever way: where that process cannot say goodbye, the system tells the child that nobody reads its answers.

A message is the length of its head (four bytes), a head in JSON and the bytes of its parts, whose sizes the head says.
Nothing is unpickled on either side.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .manifest import machine_memory

_LENGTH: Final = struct.Struct("<I")
_HEAD: Final = 256 << 20  # bytes of a head, which holds a manifest or a batch of text at the most
_KEPT: Final = 4096  # bytes of what the child last said on its standard error
_PASSED: Final = frozenset({
    "PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", "XLA_FLAGS",
})  # fmt: skip
"""What the child gets of the environment, with the options of JAX and the language: no secret that may stand in it."""


@dataclass(frozen=True)
class Limits:
    """What a program that is not trusted may take.

    Attributes:
        seconds: Of wall-clock time, for each thing asked of it: to load, to verify, to evaluate one batch. The first
            batch of a size compiles, which takes a large model minutes.
        memory: Bytes beyond what Python and the libraries take themselves; None for half of this machine's memory.
    """

    seconds: float = 600.0
    memory: int | None = None

    @property
    def bytes(self) -> int:
        """`memory` as a number."""
        return int(min(machine_memory() / 2, 1 << 62)) if self.memory is None else self.memory


class ChildEndedError(Exception):
    """The child ended before it had answered; says what ended it."""


class LimitedChild:
    """The process, started at once.

    Args:
        limits: What it may take.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        # -P: the working directory, which may be untrusted, is not on the import path; -B: nothing is written.
        command = [sys.executable, "-P", "-B", "-m", f"{__package__}.child_main", str(limits.bytes)]
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,  # Ctrl-C is for the process that asks, which then ends this one
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._said = b""
        self._read = bytearray()
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, _end, self._process)

    def close(self) -> None:
        """End it, whatever it does; a second time does nothing."""
        self._end()

    def ask(self, request: Mapping[str, object], parts: Sequence[bytes | memoryview] = ()) -> Iterator[Answer]:
        """The answers to a request, as they come.

        Raises:
            ChildEndedError: It ended, or took longer than `limits.seconds`, which ends it.
        """
        with self._lock:
            try:
                if not self._end.alive:
                    raise ChildEndedError("it was ended before")
                deadline = time.monotonic() + self.limits.seconds
                outgoing = memoryview(framed({**request, "seconds": self.limits.seconds}, parts))
                while True:
                    answer = self._answer(outgoing, deadline)
                    outgoing = memoryview(b"")
                    if answer.head.get("done"):
                        return
                    if "error" in answer.head:
                        break
                    yield answer
            except BaseException:  # a child that was left in the middle of its answers would give them to the next
                self.close()
                raise
        yield answer  # the last one, after which the child can be asked again

    def _answer(self, outgoing: memoryview, deadline: float) -> Answer:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            if outgoing:
                selector.register(process.stdin, selectors.EVENT_WRITE)
            while (answer := self._next()) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ChildEndedError(f"takes longer than {self.limits.seconds:g} s")
                for key, _ in selector.select(left):
                    if key.fileobj is process.stdin:
                        try:
                            outgoing = outgoing[os.write(key.fd, outgoing[: 1 << 20]) :]
                        except BrokenPipeError:
                            outgoing = memoryview(b"")
                        if not outgoing:
                            selector.unregister(key.fileobj)
                    elif data := os.read(key.fd, 1 << 20):
                        if key.fileobj is process.stdout:
                            self._read += data
                        else:
                            self._said = (self._said + data)[-_KEPT:]
                    else:
                        selector.unregister(key.fileobj)
                        if key.fileobj is process.stdout:
                            raise ChildEndedError(self._why_it_ended(deadline))
            return answer

    def _next(self) -> Answer | None:
        """The first message of what was read, once it is whole."""
        if len(self._read) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._read)
        end = _LENGTH.size + length
        if length > _HEAD:
            raise ChildEndedError("gives more than can be read")
        if len(self._read) < end:
            return None
        try:
            head = json.loads(self._read[_LENGTH.size : end])
            sizes = [int(size) for size in head["parts"]]
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise ChildEndedError(f"gives what cannot be read ({type(error).__name__})") from error
        if min(sizes, default=0) < 0 or sum(sizes) > self.limits.bytes:
            raise ChildEndedError(f"gives more than {self.limits.bytes >> 20} MiB")
        if len(self._read) < end + sum(sizes):
            return None
        parts = []
        for size in sizes:
            parts.append(bytes(self._read[end : end + size]))
            end += size
        del self._read[:end]
        return Answer(head, parts)

    def _why_it_ended(self, deadline: float) -> str:
        assert self._process.stderr is not None
        try:
            code = self._process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return f"takes longer than {self.limits.seconds:g} s"
        os.set_blocking(self._process.stderr.fileno(), False)
        self._said = (self._said + (self._process.stderr.read() or b""))[-_KEPT:]
        last = "".join(self._said.decode("utf-8", "replace").strip().splitlines()[-1:])
        memory = f"more memory than {self.limits.bytes >> 20} MiB"
        if code == -signal.SIGALRM:
            return f"takes longer than {READING} s to be read"
        if code == -signal.SIGXCPU:
            return f"takes more than {self.limits.seconds:g} s of every processor"
        if code == -signal.SIGKILL:
            return "takes more memory than there is"
        if code < 0 and any(word in last.lower() for word in ("bad_alloc", "memory", "allocat")):
            return f"takes {memory}"
        if code < 0:
            return f"ends the process ({signal.Signals(-code).name})"
        return f"cannot be tried in a process of its own (exit {code}: {last:.200})"


READING: Final = 60
"""How many seconds the child may spend on reading one program: with damaged bytes, reading may never end."""


@dataclass(frozen=True)
class Answer:
    """One message of the child: a head in JSON, and bytes. It is as little to be trusted as what the child runs."""

    head: Mapping[str, Any]
    parts: Sequence[bytes]


def framed(head: Mapping[str, object], parts: Sequence[bytes | memoryview] = ()) -> bytes:
    """A message as bytes: the length of its head, the head as JSON, and the parts one after another."""
    text = json.dumps({**head, "parts": [len(part) for part in parts]}).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *parts])


def read_message(stream: Any) -> Answer | None:  # Any: a raw binary stream
    """The next message, or None at the stream's end; for the child, which trusts what asks it."""
    start = stream.read(_LENGTH.size)
    if len(start) < _LENGTH.size:
        return None
    head = json.loads(stream.read(_LENGTH.unpack(start)[0]))
    return Answer(head, [stream.read(size) for size in head["parts"]])


def _environment() -> dict[str, str]:
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or (name.startswith(("LC_", "JAX_", "OMP_")) and name != "JAX_COMPILATION_CACHE_DIR")
    }
    # An accelerator's memory is this process's. Each of malloc's arenas (by default some for a core) reserves 64 MiB.
    return {**passed, "JAX_PLATFORMS": "cpu", "MALLOC_ARENA_MAX": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()

"""What each task printed: a file at `ROOT/logs/RUN/TASK.log`, with a line where an attempt begins and where it ends."""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from ...digest import digest
from ...metadata import Owner
from ...redaction import PieceRedaction, has_secrets, redact
from .results import NodeResult

if TYPE_CHECKING:
    import subprocess

_LONGEST = 200
"""Bytes of a file's name."""
_PIECE = 1 << 20
"""Bytes of a log that are held in memory."""
_COMPARED = 256
"""Bytes before a place in a log by which it is known again."""


class Logs:
    """The logs of one run. A disk that takes no more ends no run: what cannot be written is lost, and `lost` says so.

    Args:
        root: The root folder.
        run: Id of the run.
    """

    def __init__(self, root: Path, run: str) -> None:
        self.folder = root / "logs" / run
        self._error: OSError | None = None
        self._reported = False
        self._reporting = threading.Lock()

    def path(self, task: str) -> Path:
        """Where a task's log lies, whether or not there is one."""
        name = quote(task, safe="[], ")
        if len(name) > _LONGEST:
            name = f"{name[: _LONGEST - 17]}-{digest('drivetrain-log-v1', name)[:16]}"
        return self.folder / f"{name}.log"

    def tasks(self) -> dict[str, Path]:
        """The log of every task that has one, oldest first."""
        if not self.folder.is_dir():
            return {}
        paths = sorted(self.folder.glob("[!.]*.log"), key=lambda path: (path.stat().st_ctime_ns, path.name))
        return {unquote(path.name.removesuffix(".log")): path for path in paths}

    def open(self, task: str) -> int:
        """A descriptor to append with; the file is its owner's alone, as it may hold a secret until an attempt ends.

        Raises:
            OSError: It cannot be made.
        """
        path, flags = self.path(task), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            return os.open(path, flags, 0o600)

    def write(self, task: str, text: str) -> None:
        """Append whole lines, without the secrets that this process knows."""
        try:
            target = self.open(task)
            try:
                os.write(target, (redact(text).rstrip("\n") + "\n").encode("utf-8", "replace"))
            finally:
                os.close(target)
        except OSError as error:
            self._error = error

    def lost(self) -> str | None:
        """That lines could not be written, and why; said once."""
        with self._reporting:  # branches of a run end at once
            reported, self._reported = self._reported, self._error is not None
        if self._error is None or reported:
            return None
        return f"logs are incomplete: {self.folder} cannot be written ({self._error.strerror})"

    def begin(self, task: str, retried: int) -> None:
        """Say that an attempt begins, when and where."""
        self.write(task, f"=== {task}: attempt {retried + 1}, {_now()}, {Owner.current()}")

    def end(self, result: NodeResult) -> None:
        """Write how an attempt ended: its state, seconds and reason."""
        reason = f": {result.reason}" if result.reason else ""
        self.write(result.node, f"=== {result.node}: {result.state} after {result.seconds:.3g} s, {_now()}{reason}")

    def redact(self, task: str, start: int = 0) -> None:
        """Take out the secrets that this process knows, from a byte on; what others append meanwhile stays."""
        if not has_secrets():
            return
        redaction = PieceRedaction(_PIECE, in_place=True)
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        with contextlib.suppress(OSError), self.path(task).open("r+b", buffering=0) as file:  # or there is none
            descriptor, read, written = file.fileno(), start, start

            def write(data: bytes) -> None:
                nonlocal written
                if os.pread(descriptor, len(data), written) != data:
                    os.pwrite(descriptor, data, written)
                written += len(data)

            while piece := os.pread(descriptor, _PIECE, read):
                read += len(piece)
                write(redaction.add(decoder.decode(piece)).encode("utf-8", "surrogateescape"))
            rest = redaction.add(decoder.decode(b"", final=True)) + redaction.end()
            write(rest.encode("utf-8", "surrogateescape"))
            while late := os.pread(descriptor, _PIECE, read):
                read += len(late)
                write(late)
            if written < read:
                os.ftruncate(descriptor, written)

    def size(self, task: str) -> int:
        """Bytes of a task's log so far; 0 where there is none."""
        try:
            return self.path(task).stat().st_size
        except OSError:
            return 0

    @contextlib.contextmanager
    def captured(self, task: str, *, visible: bool = False) -> Iterator[None]:
        """Within the block all that this process, its libraries and its children print goes into the task's log.

        Args:
            task: The task.
            visible: Whether it goes where it would have gone too.
        """
        before, start = [os.dup(number) for number in (1, 2)], self.size(task)
        copiers: list[subprocess.Popen[bytes]] = []
        flush()
        try:
            try:
                log = self.open(task)
                for number in (1, 2):
                    if visible and (copier := _copier(self.path(task), number)):
                        copiers.append(copier)
                    elif not visible:
                        os.dup2(log, number)
                os.close(log)
            except OSError as error:  # no log then, and the work goes on
                self._error = error
            yield
        finally:
            flush()
            for number, old in zip((1, 2), before, strict=True):
                os.dup2(old, number)
                os.close(old)
            _reopen()
            for copier in copiers:
                import subprocess

                # A grandchild may print for as long as it lives; but what it prints after that is not redacted.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    copier.wait(30 if has_secrets() else 2)
            self.redact(task, start)


class LogReader:
    """Reads a log that grows, in whole lines, redacted. At an attempt's end secrets are taken out of it, never lines.

    Args:
        path: The file, which need not be there yet.
        start: Bytes of it that are not to be read.
        longest: Characters of a line that is read before it has an end.
    """

    def __init__(self, path: Path, start: int = 0, longest: int = _PIECE) -> None:
        self._path = path
        self._position = start
        self._last = b""  # what was read last
        self._lines = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._redaction = PieceRedaction(longest)
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            while start and (data := file.read(min(start, _PIECE))):
                self._lines, start = self._lines + data.count(b"\n"), start - len(data)

    def read(self, *, last: bool = False) -> Iterator[str]:
        """What there is of the next lines; a line without an end only if it is long, or this is the `last` read."""
        while data := self._next(last=last):
            yield _as_utf_8(self._redaction.add(self._decoder.decode(data)))
        if last:
            yield _as_utf_8(self._redaction.add(self._decoder.decode(b"", final=True)) + self._redaction.end())

    def _next(self, *, last: bool) -> bytes:
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._position - len(self._last))
            if file.read(len(self._last)) != self._last:
                file.seek(0)
                for _ in range(self._lines):
                    file.readline()
                self._position = file.tell()
                file.seek(-min(self._position, _COMPARED), os.SEEK_CUR)
                self._last = file.read(min(self._position, _COMPARED))
            data = file.read(_PIECE)
            if not last and len(data) < _PIECE:
                data = data[: data.rfind(b"\n") + 1]
            self._position += len(data)
            self._lines += data.count(b"\n")
            self._last = (self._last + data)[-_COMPARED:]
            return data
        return b""


def _as_utf_8(text: str) -> str:
    """A text with bytes in it that are no UTF-8, as one that can be printed."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def flush() -> None:
    """Let everything that was printed reach its descriptor: Python's buffers and those of the C library."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it was closed
            stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def _copier(path: Path, number: int) -> subprocess.Popen[bytes] | None:
    """A process that copies what is printed; a thread would wait for the lock that whoever prints may hold."""
    import subprocess  # late: a child process of a runner needs none

    tee = shutil.which("tee")
    if tee is None:
        return None
    reading, writing = os.pipe()
    with contextlib.closing(os.fdopen(reading, "rb")) as source:
        # In a session of its own: Ctrl-C would end it before it has read the last words.
        copier = subprocess.Popen([tee, "-a", path], stdin=source, stdout=number, start_new_session=True)  # noqa: S603
    os.dup2(writing, number)
    os.close(writing)
    return copier


def _reopen() -> None:
    """Give Python its streams back, where they were closed or replaced."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, f"__{name}__")
        if stream is None or stream.closed:
            stream = open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, f"__{name}__", stream)
        setattr(sys, name, stream)


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"

"""Runs a command for a node: in a process group of its own, its output read line by line, ended with all it started."""

from __future__ import annotations

import codecs
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ...errors import InputError
from ...redaction import PieceRedaction
from ..launcher import processes
from ..project.context import current
from .declare import CommandError

_GRACE = 3.0
"""Seconds that a command gets to end once it is asked to."""
_LONGEST_WAIT = 60.0
"""Seconds that output is waited for after the end of its command, where more comes all the time."""
_REPEATED = 10
"""How many of the last lines of its output an error repeats."""
_LONGEST = 2000
"""Characters of one of them."""

LineHandler = Callable[[str], bool]
"""Called with a line without its line feed; returns whether it was a message to us, which people do not get to see."""


def run(
    name: str,
    shown: Sequence[str],
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    *,
    on_line: LineHandler | None = None,
    on_stop: Callable[[], None] = lambda: None,
    marked: bool = True,
) -> None:
    """Run a command until it and what it started has ended.

    Args:
        name: The component's name.
        shown: The command as the user knows it, for the error.
        argv: The command as it is started.
        env: Its whole environment.
        cwd: Its working directory.
        on_line: Called with each line first.
        on_stop: Called first where the command has to be ended by us.
        marked: Whether to find and end, by a mark in their environment, processes that left its process tree too.

    Raises:
        CommandError: It ended with another exit code than 0, or by a signal.
        InputError: There is no such program.
    """
    import shlex

    mark, marks = processes.new_mark() if marked else ("", {})
    output = _Output(on_line)
    process: subprocess.Popen[bytes] | None = None
    try:
        # A stop between the start and the assignment would leave a process that nobody knows.
        with processes.stops_deferred():
            process = _start(name, argv, {**env, **marks}, cwd)
            output.listen(process)
        _wait(process, output)
    except BaseException:
        if process is not None:
            try:
                on_stop()
            finally:
                _terminate(process)
        raise
    finally:
        if process is not None:
            _kill(process)
            processes.end_descendants(process.pid, mark, 0)
        output.finish()
    output.show()
    if process.returncode:
        code = process.returncode
        how = f"ended with exit code {code}" if code > 0 else f"was ended by {_signal(-code)}"
        last = "".join(f"\n  | {line}" for line in output.last)
        raise CommandError(f"{name}: `{shlex.join(shown)}` {how}{last}", fix="see what it printed: `drivetrain logs`")


def _start(name: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - what the user declared, without a shell
            list(argv),
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: {argv[0]} cannot be started: {error}", fix="install it, or check the name") from None


@dataclass
class _Output:
    """The output of a command: passed on to the log in whole lines; the last ones are kept for an error."""

    on_line: LineHandler | None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_REPEATED))
    now: str = ""

    def __post_init__(self) -> None:
        self._printed = current().printed
        self._shown = 0.0
        self._thread: threading.Thread | None = None
        self._waits_since: float | None = None  # while nothing comes

    def listen(self, process: subprocess.Popen[bytes]) -> None:
        """Read what a process prints from now on, in a thread."""
        self._thread = threading.Thread(target=self._read, args=[process.stdout], name="drivetrain-output", daemon=True)
        self._thread.start()

    def show(self) -> None:
        """Show the last line, where there is a new one, though not more than once a second."""
        if self.now and time.monotonic() - self._shown > 1:
            self._shown = time.monotonic()
            now, self.now = self.now, ""
            self._printed("", now)

    def finish(self) -> None:
        """Wait until all of the output was read and passed on, however slow the log.

        Not where nothing comes any more, or no end: a process that cleared its environment may still hold the pipe.
        """
        if self._thread is None or self._thread.ident is None:
            return
        began = time.monotonic()
        while self._thread.is_alive() and time.monotonic() - began < _LONGEST_WAIT:
            waits_since = self._waits_since
            if waits_since is not None and time.monotonic() - max(began, waits_since) > _GRACE:
                return
            self._thread.join(0.05)

    def _read(self, stream: IO[bytes]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        redaction = PieceRedaction(_LONGEST)  # a progress bar is a line without an end
        with stream, contextlib.suppress(OSError):
            while chunk := self._next(stream):
                self._take(redaction.add(decoder.decode(chunk)))
        self._take(redaction.add(decoder.decode(b"", final=True)) + redaction.end())

    def _next(self, stream: IO[bytes]) -> bytes:
        self._waits_since = time.monotonic()
        chunk = os.read(stream.fileno(), 1 << 16)
        self._waits_since = None
        return chunk

    def _take(self, text: str) -> None:
        if not text:
            return
        # A progress bar overwrites its line by carriage returns: what it showed last is kept.
        drawn = (line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n"))
        kept = [line for line in drawn if self.on_line is None or not self.on_line(line)]
        if kept:
            self.last.extend(line[:_LONGEST] for line in kept if line.strip())
            self.now = self.last[-1] if self.last else ""
            self._printed("\n".join(kept), "")


def _wait(process: subprocess.Popen[bytes], output: _Output) -> None:
    """Wait until the process has ended, or the run is stopped.

    Raises:
        Canceled: The run was asked to stop.
    """
    context = current()
    while not _ends(process, within=0.2):
        context.check()
        output.show()


def _ends(process: subprocess.Popen[bytes], within: float) -> bool:
    """Whether the process ends within so many seconds."""
    pause, begin = 0.001, time.monotonic()
    while True:
        with processes.stops_deferred():  # stopped amid a look, a Popen is never to be waited for again
            if process.poll() is not None:
                return True
        left = begin + within - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, 0.05)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the process group, and wait a little."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    _ends(process, within=_GRACE)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group if it is still there: it ignored SIGTERM, or a second stop cut the waiting short."""
    with processes.stops_deferred():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

"""A command run for a node: in a process group of its own, heard line by line, and ended with all that it started."""

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
from ..launcher import processes
from ..project.context import current
from ..project.secret import marked_secrets, redact
from .declare import CommandError

_GRACE = 3.0
"""Seconds that a command gets to end once it is asked to."""
_TOLD = 10
"""Lines of what it printed that an error repeats."""
_LONGEST = 2000
"""Characters of one of them."""

Hear = Callable[[str], bool]
"""Told a line without its line feed; whether it was meant for it, and not for people."""


def run(
    name: str,
    shown: Sequence[str],
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    *,
    hear: Hear | None = None,
    abandon: Callable[[], None] = lambda: None,
    marked: bool = True,
) -> None:
    """Run a command until it and what it started has ended.

    Args:
        name: The component's name.
        shown: The command as the user knows it, for the error.
        argv: The command as it is started.
        env: Its whole environment.
        cwd: Its working directory.
        hear: Gets each line first.
        abandon: Called where it is ended before it did so itself.
        marked: Whether to end what has left its process tree too.

    Raises:
        CommandError: It ended with another exit code than 0, or by a signal.
        InputError: There is no such program.
    """
    import shlex

    mark, marks = processes.marked() if marked else ("", {})
    said = _Output(hear)
    process: subprocess.Popen[bytes] | None = None
    try:
        with processes.unstopped():
            process = _start(name, argv, {**env, **marks}, cwd)
            said.listen(process)
        _wait(process, said)
    except BaseException:
        if process is not None:
            try:
                abandon()
            finally:
                _ask(process)
        raise
    finally:
        if process is not None:
            _end(process)
            processes.end(process.pid, mark, 0)
        said.finish()
    said.show()
    if process.returncode:
        code = process.returncode
        how = f"ended with exit code {code}" if code > 0 else f"was ended by {_signal(-code)}"
        last = "".join(f"\n  | {line}" for line in said.last)
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
    """What a command prints: on to the log in whole lines, the last ones kept."""

    hear: Hear | None
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_TOLD))
    now: str = ""

    def __post_init__(self) -> None:
        self._printed = current().printed
        self._shown = 0.0
        self._thread: threading.Thread | None = None

    def listen(self, process: subprocess.Popen[bytes]) -> None:
        """Take down what a process prints from now on."""
        self._thread = threading.Thread(target=self._read, args=[process.stdout], name="drivetrain-hear", daemon=True)
        self._thread.start()

    def show(self) -> None:
        """Show the last line, where there is a new one, though not more than once a second."""
        if self.now and time.monotonic() - self._shown > 1:
            self._shown = time.monotonic()
            now, self.now = self.now, ""
            self._printed("", now)

    def finish(self) -> None:
        """See that all of it was heard."""
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(_GRACE)  # what no mark reaches may hold the pipe open

    def _read(self, stream: IO[bytes]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        with stream, contextlib.suppress(OSError):
            while chunk := os.read(stream.fileno(), 1 << 16):
                *lines, rest = (rest + decoder.decode(chunk)).split("\n")
                self._take(lines)
                if len(rest) > _LONGEST:  # a bar that is drawn over and over, or no line at all
                    over, rest = self._cut(redact(rest))
                    self._take([over])
        self._take([rest] if rest else [])

    def _cut(self, rest: str) -> tuple[str, str]:
        """Where to end a line that has no end yet: not within what may be a secret."""
        if "\r" in rest:
            over, _, rest = rest.rpartition("\r")
            return over, rest
        kept = max((len(value) for value in marked_secrets()), default=1) - 1
        return rest[: len(rest) - kept], rest[len(rest) - kept :]

    def _take(self, lines: Sequence[str]) -> None:
        # Of what was drawn over on a terminal, what stood there last.
        drawn = (redact(line).rstrip("\r").rpartition("\r")[2] for line in lines)
        heard = [line for line in drawn if self.hear is None or not self.hear(line)]
        if heard:
            self.last.extend(line[:_LONGEST] for line in heard if line.strip())
            self.now = self.last[-1] if self.last else ""
            self._printed("\n".join(heard), "")


def _wait(process: subprocess.Popen[bytes], said: _Output) -> None:
    """Until it has ended; whoever asks the node to stop is heard here."""
    context = current()
    while not _ended(process, within=0.2):
        context.check()
        said.show()


def _ended(process: subprocess.Popen[bytes], within: float) -> bool:
    """Whether it ends within so many seconds."""
    pause, begin = 0.001, time.monotonic()
    while True:
        with processes.unstopped():  # stopped amid a look, a Popen is never to be waited for again
            if process.poll() is not None:
                return True
        left = begin + within - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, 0.05)


def _ask(process: subprocess.Popen[bytes]) -> None:
    """Ask the group to end; what left it is found by its mark."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    _ended(process, within=_GRACE)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group that did not do so itself, or did not get the time to: a second stop waits no longer."""
    with processes.unstopped():
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

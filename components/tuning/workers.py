"""Processes of trials, seen from the one that searches: started when there is work, heard, and seen to die."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_LINE: Final = 500
"""Characters of the last line that a process printed, which stands in notes and in why a trial failed."""
_PIPES: Final = 16
"""Reads of what a process has left in its pipe, which holds 64 KiB unless someone widened it."""
_LAST: Final = 5.0
"""Seconds that a process has to end after it has closed its socket."""


class Worker:
    """A process that does one trial after another."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._lines = b""
        self.last_line = ""
        self.busy = False
        self._lived = False  # when it was to end
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - this Python, with our own arguments
                # -P: a file of the working directory must not stand in for a module of Python's.
                [sys.executable, "-P", "-m", f"{__package__}.worker", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C is for the run, which ends its processes
                env={
                    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # they share an accelerator
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),  # it finds what this one finds
                    "PYTHONUNBUFFERED": "1",
                },
            )
        self._socket = ours
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        selector.register(ours, selectors.EVENT_READ, (self, True))
        selector.register(self.process.stdout, selectors.EVENT_READ, (self, False))

    def send(self, **message: Any) -> None:
        """Send a message; none arrives where the process is dead, which is seen when it is heard next."""
        with suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def messages(self) -> list[dict[str, Any]] | None:
        """What it has sent; None once it is dead, or has closed its socket, and everything was heard."""
        dead = self.process.poll() is not None  # before the look at the socket, so that nothing is lost
        data = b""
        try:
            data = self._socket.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None if dead else []  # what it started may hold the socket open for ever
        except ConnectionError:
            pass
        if not data:
            return None
        *lines, self._lines = (self._lines + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def printed(self) -> str:
        """What it has printed."""
        assert self.process.stdout is not None
        try:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return ""
        if not data:  # it ended, and would be selected for ever
            with suppress(KeyError):
                self._selector.unregister(self.process.stdout)
        text = data.decode(errors="replace").rstrip("\n")
        self.last_line = text.rpartition("\n")[2].strip()[:_LINE] or self.last_line
        return text

    def end(self) -> None:
        """Kill the process where it still lives. What it printed to the last can still be read."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0 if self.process.poll() is not None else _LAST if self._is_closed() else 0)
        self._lived = self.process.poll() is None
        with suppress(ProcessLookupError):
            # The session that it leads: what it started ends with it.
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Close the files of a process that has ended."""
        for file in (self._socket, self.process.stdout):
            with suppress(KeyError, ValueError):
                self._selector.unregister(file)  # type: ignore[arg-type]
        for stream in (self._socket, self.process.stdin, self.process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _is_closed(self) -> bool:
        """Whether the other end of the socket is."""
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def how(self) -> str:
        """How it ended, and its last words where it did so itself."""
        code = self.process.wait()
        if self._lived:
            return "it was ended"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            more = ", or the machine ran out of memory" if -code == signal.SIGKILL else ""
            return f"it was ended by {name}{more}"
        return f"it ended with code {code}: {self.last_line}" if self.last_line else f"it ended with code {code}"


class Workers:
    """At most so many processes, started when there is work for them.

    Attributes:
        most: How many there are at most.
    """

    def __init__(self, most: int, printed: Callable[[str, str], None]) -> None:
        """None is started yet.

        Args:
            most: How many there are at most.
            printed: Called with lines that they print, and the last of them.
        """
        self.most = most
        self._printed = printed
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []

    def free(self) -> Worker | None:
        """A process that has nothing to do, started now where there may be more; None where all are at work."""
        idle = next((worker for worker in self._workers if not worker.busy), None)
        if idle is None and len(self._workers) < self.most:
            idle = Worker(self._selector)
            self._workers.append(idle)
        return idle

    def wait(self, seconds: float) -> list[tuple[Worker, dict[str, Any] | None]]:
        """Messages that come within some seconds, as soon as there are some; None for a message: the process ended."""
        messages: list[tuple[Worker, dict[str, Any] | None]] = []
        for key, _ in self._selector.select(seconds):
            worker, speaks = key.data
            if not speaks and (text := worker.printed()):
                self._printed(text, worker.last_line)
        for worker in self._workers:
            sent = worker.messages()
            messages += [(worker, None)] if sent is None else [(worker, message) for message in sent]
        return messages

    def remove(self, worker: Worker) -> str:
        """Forget a process that ended; gives how, with its last words."""
        worker.end()  # first: it closes its socket before it prints why
        for _ in range(_PIPES):
            if text := worker.printed():
                self._printed(text, worker.last_line)
        self._workers.remove(worker)
        worker.close()
        return worker.how()

    def close(self) -> None:
        """End all of them."""
        for worker in self._workers:
            worker.end()
            worker.close()
        self._workers.clear()
        self._selector.close()

"""The process of trials: it does one after another, tells of each epoch, and ends with the process that started it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO

from ...pipelines import FunctionRef, LaunchContext
from ...pipelines.project.context import enter


class SocketLink:
    """Tells of a trial through a socket, a JSON object a line; each epoch is answered."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()  # the user's function may have threads

    def monitored(self, names: Sequence[str]) -> None:
        """Send the names."""
        self.send(event="monitored", names=list(names))

    def epoch(self, curve: Sequence[Sequence[float]]) -> str | None:
        """Send the curve, and wait for the answer."""
        self.send(event="epoch", curve=[list(values) for values in curve])
        line = self._stream.readline()
        if not line:  # there is nobody to train for
            os.kill(os.getpid(), signal.SIGKILL)
        stop: str | None = json.loads(line)["stop"]
        return stop

    def note(self, text: str) -> None:
        """Send the text."""
        self.send(event="note", text=text)

    def send(self, **message: Any) -> None:
        """Send a message."""
        with self._lock:
            self._stream.write(json.dumps(message).encode() + b"\n")
            self._stream.flush()


def end_with_parent() -> None:
    """End this process once its standard input is closed: whoever started it is gone."""
    while os.read(0, 1 << 10):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main(descriptor: int) -> None:
    """Do the trials that come through a socket.

    Args:
        descriptor: Of the socket, inherited.
    """
    os.set_inheritable(descriptor, False)
    threading.Thread(target=end_with_parent, daemon=True).start()
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rwb") as stream:
        link = SocketLink(stream)  # type: ignore[arg-type]  # it reads and writes bytes
        for line in stream:
            task = json.loads(line)
            leave = enter(replace(LaunchContext(), note=link.note))
            try:
                outcome = FunctionRef(None, task["body"]).load()(task, link)
            finally:
                leave()
            sys.stdout.flush()
            link.send(event="ended", outcome=outcome.to_json())


if __name__ == "__main__":
    main(int(sys.argv[1]))

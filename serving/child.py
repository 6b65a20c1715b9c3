"""The server as a process of its own: started, asked whether it is up, ended, also where its parent is killed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from ..errors import DrivetrainError

_DRIVETRAIN: Final = """
import os, runpy, signal, threading

def end_with_parent():
    os.read(0, 1)  # until the parent is gone
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_parent, daemon=True).start()
runpy.run_module("drivetrain", run_name="__main__", alter_sys=True)
"""
"""`python -m drivetrain`, which ends when its standard input does."""


class ServerStartError(DrivetrainError):
    """A server did not start."""


@dataclass(frozen=True)
class ServerProcess:
    """A server that is up.

    Attributes:
        address: Of its HTTP interface.
        process: The process.
        seconds: What it took to start.
    """

    address: str
    process: subprocess.Popen[bytes]
    seconds: float

    @property
    def memory(self) -> int:
        """Bytes that the process takes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    @classmethod
    @contextlib.contextmanager
    def start(cls, base_path: Path, log: Path, most_seconds: float) -> Iterator[ServerProcess]:
        """Serve the model in a folder, called by the folder's name, while the block runs.

        Args:
            base_path: The folder of versions.
            log: The file for what the server logs.
            most_seconds: How long it may take until a version answers.

        Raises:
            ServerStartError: It ended, took longer, or refused the version.
        """
        arguments = ["serve", str(base_path), "--json", "--rest-port", "0", "--poll", "0"]
        start = time.monotonic()
        with log.open("wb") as errors:
            process = subprocess.Popen(  # noqa: S603 - this Python, with our own arguments
                [sys.executable, "-c", _DRIVETRAIN, *arguments],
                stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.PIPE, env=dict(os.environ),
            )  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            readable, _, _ = select.select([process.stdout], [], [], most_seconds)
            line = process.stdout.readline() if readable else b""
            seconds = time.monotonic() - start
            if not line:
                how = f"took more than {most_seconds:g} s to start"
                if readable:  # it has closed its output, and is just about to be gone
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        how = f"ended with code {process.wait(10)}"
                raise ServerStartError(f"the server {how}")
            started = json.loads(line)
            if not started["ready"]:
                raise ServerStartError("the server refused the model")
            yield cls(started["address"], process, seconds)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdin.close()
            process.stdout.close()

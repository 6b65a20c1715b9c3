"""A server in a process of its own, as a user starts it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class RunningServer:
    """Where it listens, and the process."""

    address: str
    grpc: str | None
    process: subprocess.Popen[str]
    log: Path

    def end(self) -> int:
        """Tell it to end, and give its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def serving(folder: Path, *arguments: str, program: tuple[str, ...] = ("-m", "drivetrain")) -> Iterator[RunningServer]:
    """`drivetrain serve --json` with these arguments; its log goes to a file in the folder."""
    log = folder / "server.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, *program, "serve", "--json", "--rest-port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, log.read_text()
            started = json.loads(line)
            yield RunningServer(started["address"], started["grpc"], process, log)
        finally:
            process.kill()
            process.wait(60)
            process.stdout.close()

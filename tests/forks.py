"""A command in forks of one process that has imported what it needs.

Importing JAX and Flax costs more than a small run or training itself: a test that starts a hundred imports them once. A
fork is otherwise what the command is: a process, in a group of its own, with its own exit status, killed like any.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any


class Fork:
    """A command at work, the only fork of its server; `out` and `err` are files with what it prints."""

    def __init__(self, server: subprocess.Popen[bytes], prints: Path, arguments: tuple[str, ...]) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._answers = server.stdout
        self._end: dict[str, Any] | None = None
        server.stdin.write(json.dumps(arguments).encode() + b"\n")
        self.pid = int(self._answers.readline())
        self.out, self.err = (prints / f"{self.pid}.{name}" for name in ("out", "err"))

    def end(self, seconds: float | None = 0.0) -> dict[str, Any] | None:
        """Its `code` (minus a signal's number), `cpu` seconds and `peak_bytes`; None where it is still at work.

        Args:
            seconds: How long it is waited for; None for as long as it takes.
        """
        if self._end is None and select.select([self._answers], [], [], seconds)[0]:
            self._end = json.loads(self._answers.readline())
        return self._end

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send its process group a signal, where it has not ended."""
        if self._end is None:
            with suppress(ProcessLookupError):  # it ended just now
                os.killpg(self.pid, number)


class Forks:
    """A server of forks, for the time of a `with` block; they have the environment that it begins in.

    Args:
        program: `module:function`, called without arguments where those of `start` are the command's.
        modules: What it imports beforehand, of drivetrain's all public names.
    """

    def __init__(self, program: str, *modules: str) -> None:
        self._imports = (program, *modules)

    def __enter__(self) -> Forks:
        self._prints = tempfile.TemporaryDirectory(prefix="drivetrain-forks-")
        command = [sys.executable, "-m", "drivetrain.tests.forks", self._prints.name, *self._imports]
        # Unbuffered: `select` does not see what a buffer has read ahead.
        self._server = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._prints, self._server:
            pass

    def start(self, *arguments: str) -> Fork:
        """Begin the command; the one before must have been seen to end."""
        return Fork(self._server, Path(self._prints.name), arguments)


def _serve(prints: str, program: str, *modules: str) -> None:
    """Fork for each line of standard input, a list of arguments; tell the fork's id, and how it ended once it did."""
    module_of, _, function = program.partition(":")
    for name in (*modules, module_of):
        module = importlib.import_module(name)
        if name.startswith("drivetrain."):  # its public names are imported once they are asked for
            for public in getattr(module, "__all__", ()):
                getattr(module, public)
    from jax._src import xla_bridge

    assert not xla_bridge.backends_are_initialized(), "a fork would have its locks, and none of its threads"
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    while line := os.read(0, 1 << 16):
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            _become(json.loads(line), prints)
            getattr(sys.modules[module_of], function)()
            sys.exit()
        os.setpgid(pid, pid)  # here too: who is told the id may kill the group at once, and read what it prints
        for name in ("out", "err"):
            Path(f"{prints}/{pid}.{name}").touch()
        print(pid, file=answers, flush=True)
        _, status, usage = os.wait4(pid, 0)
        cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        end = {"code": os.waitstatus_to_exitcode(status), "cpu": cpu, "peak_bytes": peak}
        print(json.dumps(end), file=answers, flush=True)


def _become(arguments: list[str], prints: str) -> None:
    """Be a process with these arguments, which reads nothing and prints into files."""
    outputs = [
        os.open(f"{prints}/{os.getpid()}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for name in ("out", "err")
    ]
    for number, file in enumerate([os.open(os.devnull, os.O_RDONLY), *outputs]):
        os.dup2(file, number)
        os.close(file)
    sys.argv[1:] = arguments


if __name__ == "__main__":
    _serve(*sys.argv[1:])

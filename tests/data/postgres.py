"""A PostgreSQL server of our own, on loopback, for tests: `from drivetrain.tests.data.postgres import server`."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drivetrain.tests.beam.servers import free_port


class Server:
    """A server that can be killed and started again; `url` is its database, `programs` the folder of PostgreSQL's own.

    Args:
        primary: The server that it is a standby of, which runs; a server of its own without.
    """

    def __init__(self, primary: "Server | None" = None) -> None:
        pytest.importorskip("psycopg")
        self._port = free_port()
        self.host = f"127.0.0.1:{self._port}"
        self.url = f"postgresql://me:secret@{self.host}/postgres"
        installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        self.programs = (installed or [Path(shutil.which("initdb") or "/none").parent])[-1]
        if not (self.programs / "initdb").exists():
            pytest.skip("PostgreSQL is not installed")
        self._folder = Path(tempfile.mkdtemp(prefix="drivetrain-postgres-", dir="/tmp"))
        # The server refuses to run as root; Debian's package brings an account for it.
        account: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
        if account:
            shutil.chown(self._folder, "postgres")
        self._quiet: dict[str, Any] = {
            "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": "/", **account,
        }  # fmt: skip
        data = str(self._folder / "data")
        if primary is None:
            command = [str(self.programs / "initdb"), "-D", data, "-U", "me", "-A", "trust", "-E", "UTF8", "--no-sync"]
        else:
            command = [str(self.programs / "pg_basebackup"), "-D", data, "-d", primary.url, "-R", "-c", "fast", "-N"]
        subprocess.run(command, check=True, **self._quiet)

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = ["listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}", "fsync=off"]
        command = [str(self.programs / "postgres"), "-D", str(self._folder / "data"), "-p", str(self._port)]
        ready = [str(self.programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self._port)]
        command += [word for option in options for word in ("-c", option)]
        self._process = subprocess.Popen(command, **self._quiet)
        for _ in range(1200):
            if not subprocess.run(ready, check=False, **self._quiet).returncode:
                return
            if self._process.poll() is not None:  # what is left of one that was killed holds its memory
                self._process = subprocess.Popen(command, **self._quiet)
            time.sleep(0.1)
        raise RuntimeError("PostgreSQL does not start")

    def kill(self) -> None:
        """Kill it with all it has started, as a machine that fails does."""
        me = self._process.pid
        children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
        for pid in (me, *map(int, children)):
            with suppress(ProcessLookupError):  # children end by themselves when it does
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def promote(self) -> None:
        """Make a standby take over; it has when this returns."""
        command = [str(self.programs / "pg_ctl"), "promote", "-w", "-D", str(self._folder / "data")]
        subprocess.run(command, check=True, **self._quiet)

    def stop(self) -> None:
        """Stop it: its sessions end at once."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def close(self) -> None:
        """Stop it and remove its files."""
        self.stop()
        shutil.rmtree(self._folder)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server of our own, on loopback."""
    started = Server()
    started.start()
    try:
        yield started.url
    finally:
        started.close()

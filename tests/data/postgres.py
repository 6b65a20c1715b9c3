"""A PostgreSQL server of our own, on loopback, for tests: `from drivetrain.tests.data.postgres import server`."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server of our own, on loopback."""
    pytest.importorskip("psycopg")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [Path(shutil.which("initdb") or "/none").parent]
    if not (installed[-1] / "initdb").exists():
        pytest.skip("PostgreSQL is not installed")
    folder = Path("/tmp") / f"drivetrain-postgres-{os.getpid()}"
    folder.mkdir(mode=0o700)
    # The server refuses to run as root; Debian's package brings an account for it.
    account: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
    if account:
        shutil.chown(folder, "postgres")
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "cwd": "/", **account}
    command: list[str | Path] = [
        installed[-1] / "initdb",
        "-D",
        folder / "data",
        "-U",
        "me",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    subprocess.run(command, check=True, **quiet)
    options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
    server = subprocess.Popen(
        [str(installed[-1] / "postgres"), "-D", str(folder / "data"), "-p", str(port), *options], **quiet
    )
    try:
        url = f"postgresql://me:secret@127.0.0.1:{port}/postgres"
        for _ in range(100):
            if not subprocess.run(
                [installed[-1] / "pg_isready", "-h", "127.0.0.1", "-p", str(port)], **quiet
            ).returncode:
                break
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)

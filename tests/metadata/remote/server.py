"""A metadata server in a process of its own, whose namespaces and keys a test changes while it runs."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from drivetrain.metadata.remote.client import KEY
from drivetrain.serving.access import digest_of, new_secret


class MetadataServerProcess:
    """A server of `drivetrain metadata-server` on this machine, with a key "tests" for all namespaces and roles.

    Args:
        folder: Where its file and its log are written.
        tls: The files of its certificate and of the certificate's key.
    """

    def __init__(self, folder: Path, tls: tuple[Path, Path] | None = None) -> None:
        self.folder = folder
        self.tls = tls
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._secrets: dict[str, str] = {}
        self._access: dict[str, Any] = {"namespaces": {}, "keys": {}}
        self.add_key("tests", ["writer", "approver", "gc", "admin"])

    @property
    def address(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def secret(self, name: str) -> str:
        return self._secrets[name]

    def environment(self, name: str = "tests") -> dict[str, str]:
        """What a process of the key's owner has: the key, and nothing by which it could reach a database."""
        return {**os.environ, KEY: self.secret(name)}

    def add_key(self, name: str, roles: list[str], **more: Any) -> str:
        secret = new_secret()
        self._secrets[name] = secret
        self._access["keys"][name] = {"sha256": digest_of(secret), "roles": roles, **more}
        self._write()
        return secret

    def remove_key(self, name: str) -> None:
        del self._access["keys"][name]
        self._write()

    def trust(self, **proxy: Any) -> None:
        self._access["proxy"] = proxy
        self._write()

    def namespace(self, name: str, store: str | Path) -> str:
        """The URL of a store, which is made a namespace."""
        self._access["namespaces"][name] = str(store)
        self._write()
        return f"{self.address}/{name}"

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "drivetrain", "metadata-server", str(self.folder / "access.yaml")),
                    *("--port", str(self.port), "--json"),
                    *(() if self.tls is None else ("--tls-cert", str(self.tls[0]), "--tls-key", str(self.tls[1]))),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                env={name: value for name, value in os.environ.items() if name != KEY},
            )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline() if ready else b""
        assert line, self.log
        assert json.loads(line)["address"] == self.address

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self) -> None:
        assert self.process is not None
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert self.process.wait(timeout=30) in (0, -signal.SIGTERM, 128 + signal.SIGTERM), self.log

    def _write(self) -> None:
        path = self.folder / "access.yaml"
        fresh = path.with_suffix(f".{time.monotonic_ns()}")
        fresh.write_text(yaml.safe_dump(self._access))
        fresh.rename(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""Who runs something: a process, named so that any process of its host can see whether it still lives."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

_PROC = Path("/proc/self")  # Linux has it, macOS does not
Liveness = Literal["alive", "dead", "unknown"]


@dataclass(frozen=True)
class Owner:
    """One process.

    Attributes:
        host: The host's name.
        boot_id: This start of the host and, where there are pid namespaces (containers), which of them.
        pid: The process id.
        start_time: When the process started, in the host's own spelling: a pid is reused, the pair is not.
    """

    host: str
    boot_id: str
    pid: int
    start_time: str

    @classmethod
    def current(cls) -> Owner:
        """The process that asks. Right after a fork too."""
        return _current(os.getpid())

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Owner:
        """The owner from the JSON of `to_dict`; raises KeyError or ValueError where it is none."""
        return cls(str(value["host"]), str(value["boot_id"]), int(value["pid"]), str(value["start_time"]))

    def to_dict(self) -> dict[str, str | int]:
        """The four fields as a JSON object; it is stored with executions and claims."""
        return {"host": self.host, "boot_id": self.boot_id, "pid": self.pid, "start_time": self.start_time}

    def liveness(self) -> Liveness:
        """Whether the process runs: "unknown" for another host, container, or boot."""
        if (self.host, self.boot_id) != (_host(), _boot_id()):
            return "unknown"
        started = _start_time(self.pid)
        if started is None:
            return "dead"
        return "alive" if not self.start_time or not started or started == self.start_time else "dead"

    def rebooted(self) -> bool:
        """Whether the process ran on this host before its last boot, and so cannot run any more."""
        return self.host == _host() and self.boot_id.partition("/")[0] != _boot_id().partition("/")[0]

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@cache
def _current(pid: int) -> Owner:
    return Owner(_host(), _boot_id(), pid, _start_time(pid) or "")


@cache
def _host() -> str:
    return socket.gethostname()


@cache
def _boot_id() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return _ask("sysctl", "-n", "kern.bootsessionuuid") or "unknown"


def _start_time(pid: int) -> str | None:
    """When the process started, "" where that cannot be learned, None where there is no such process."""
    if _PROC.is_dir():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError:
            return ""
        # The command, in parentheses, may itself hold spaces and parentheses: count from its end.
        fields = stat.rpartition(")")[2].split()
        # A zombie was killed and waits for its parent: it will not run again.
        return None if fields[0] in {"Z", "X"} else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it exists and belongs to another user
    return _ask("ps", "-o", "lstart=", "-p", str(pid))


def _ask(*command: str) -> str:
    """The output of a small system tool, "" where it is missing or fails."""
    import subprocess  # only where there is no /proc: its import costs as much as the rest of this module

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

"""Who runs something: a process, named so that any process of its host can see whether it still lives."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

_PROC = Path("/proc/self")  # Linux has it, macOS does not
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_MACHINE_ID = re.compile("[0-9a-f]{32}")  # else it says "uninitialized", in an image
_NO_BOOT_ID = "unknown"
Liveness = Literal["alive", "dead", "unknown"]


class UnseenOwner(Exception):  # noqa: N818 - a question, not a mistake
    """Somebody asks from another machine, and has not said whether it sees this process, which may run there.

    Attributes:
        owner: The process.
    """

    def __init__(self, owner: Owner) -> None:
        super().__init__(str(owner))
        self.owner = owner


@dataclass(frozen=True)
class Owner:
    """One process.

    Attributes:
        host: The host's name and, after a slash, a digest of its machine id where it has one (`_host`).
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
        asker = _ASKER.get()
        return _current(os.getpid()) if asker is None else asker.owner

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Owner:
        """The owner from the JSON of `to_dict`; raises KeyError or ValueError if it is not one."""
        return cls(str(value["host"]), str(value["boot_id"]), int(value["pid"]), str(value["start_time"]))

    def to_dict(self) -> dict[str, str | int]:
        """The four fields as a JSON object; it is stored with executions and claims."""
        return {"host": self.host, "boot_id": self.boot_id, "pid": self.pid, "start_time": self.start_time}

    def liveness(self) -> Liveness:
        """Whether the process runs: "unknown" for another host, container, or boot.

        A process is looked up by its id only on the kernel that started it, which the boot id names: hosts may have the
        same name. Where there is no boot id, nothing says which kernel that was.

        Raises:
            UnseenOwner: On behalf of another machine, which has to say.
        """
        seen, asker = self._seen(), _ASKER.get()
        return seen if seen != "unknown" or asker is None else asker.sight(self).liveness

    def _seen(self) -> Liveness:
        if (self.host, self.boot_id) != (_host(), _boot_id()) or self.boot_id == _NO_BOOT_ID:
            return "alive" if self == Owner.current() else "unknown"
        started = _start_time(self.pid)
        if started is None:
            return "dead"
        return "alive" if not self.start_time or not started or started == self.start_time else "dead"

    def rebooted(self) -> bool:
        """Whether the process ran on this machine before its last boot, and so cannot run any more.

        A name alone does not say that it was this machine, so one without a machine id is never asked. The id does not
        prove it either: clones of a machine, and containers of one image, may share it. So a lease that is known goes
        before: it ends when its holder does, on whatever machine.
        """
        if (asker := _ASKER.get()) is not None and self.host == asker.owner.host != _host():
            return asker.sight(self).rebooted
        earlier = self.boot_id.partition("/")[0] != _boot_id().partition("/")[0]
        return earlier and self.host == _host() and "/" in self.host

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"


@dataclass(frozen=True)
class Sight:
    """What a machine says of a process.

    Attributes:
        liveness: Whether it runs there.
        rebooted: Whether it ran there before the machine's last boot.
    """

    liveness: Liveness = "unknown"
    rebooted: bool = False


@dataclass(frozen=True)
class Asker:
    """On whose behalf a server does something.

    Attributes:
        owner: The process that asks.
        name: Who that is, as the server proved it.
        seen: What its machine said of other processes.
    """

    owner: Owner
    name: str
    seen: Mapping[Owner, Sight]

    def sight(self, owner: Owner) -> Sight:
        """What the asker's machine says of a process; nothing of one of another machine.

        Raises:
            UnseenOwner: It has not been asked.
        """
        if owner == self.owner:
            return Sight("alive")
        if owner.host != self.owner.host:
            return Sight()
        if owner not in self.seen:
            raise UnseenOwner(owner)
        return self.seen[owner]


_ASKER: ContextVar[Asker | None] = ContextVar("drivetrain_asker", default=None)


@contextmanager
def on_behalf(asker: Asker) -> Iterator[None]:
    """Take another process for the current one while the block runs, in this thread: a server does what it asks for."""
    token = _ASKER.set(asker)
    try:
        yield
    finally:
        _ASKER.reset(token)


def asking() -> Asker | None:
    """On whose behalf this thread does something; None on its own."""
    return _ASKER.get()


def person() -> str:
    """Who is logged in, as the system calls them; "" where nobody has a name, as in some containers."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):  # as `getpass.getuser`, whose module loads others
        if name := os.environ.get(variable):
            return name
    with suppress(ImportError, KeyError, OSError):
        import pwd  # Windows has none

        return pwd.getpwuid(os.getuid()).pw_name
    return ""


@cache
def _current(pid: int) -> Owner:
    return Owner(_host(), _boot_id(), pid, _start_time(pid) or "")


@cache
def _host() -> str:
    """The host's name and a digest of its machine id: hosts of one name, as clouds give them, are told apart by it.

    The id itself is not to leave the machine (machine-id(5)). A container often has none, or an empty one.
    """
    for path in _MACHINE_IDS:
        with suppress(OSError):
            machine = path.read_text(encoding="ascii", errors="replace").strip()
            if _MACHINE_ID.fullmatch(machine):
                return f"{os.uname().nodename}/{hashlib.sha256(f'drivetrain {machine}'.encode()).hexdigest()[:12]}"
    return os.uname().nodename


@cache
def _boot_id() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return _ask("sysctl", "-n", "kern.bootsessionuuid") or _NO_BOOT_ID


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

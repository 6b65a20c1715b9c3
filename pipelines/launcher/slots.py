"""Cores and memory of this machine, which the tasks of all runs of a user share fairly.

A request is a file whose name says all there is to know of it. The process that made it has it locked as long as it
lives, so that whoever finds one without a lock removes it: what a killed process had is free at once. There is no
process that hands anything out: each one that waits looks for itself, one at a time, and all go by the same rule.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from ...digest import digest
from ...errors import BuildError, InputError
from ...machine import spell_bytes, total_memory
from ..ir.ir import Node
from ..ir.options import parse_bytes

CPUS = "DRIVETRAIN_CPUS"
"""The environment variable that says how many cores runs share; then a node that asks for none takes one."""
MEMORY = "DRIVETRAIN_MEMORY"
"""The environment variable that says how much memory runs share, e.g. "48GiB"."""
_HOLDER: Final = "DRIVETRAIN_SLOT_HOLDER"
"""Names a process whose task has a slot to the processes that the task starts."""
_POLL: Final = 0.05
"""Seconds between two looks at whether a request came or went, which cost one system call."""
_RECHECK: Final = 0.25
"""Seconds after which a request that waits looks for processes that died, of which no folder tells."""
_ROUNDING: Final = 1e-9
"""What ten times 0.1 cores may be more than one."""


class Capacity(NamedTuple):
    """What runs share.

    Attributes:
        cpus: Cores.
        memory: Bytes.
    """

    cpus: float
    memory: int


class SlotRequest(NamedTuple):
    """What a task has of the machine, or waits for.

    Attributes:
        number: Its place in the order of arrival.
        run: Whose it is.
        cpus: Cores.
        memory: Bytes.
        is_granted: Whether it has them.
    """

    number: int
    run: str
    cpus: float
    memory: int
    is_granted: bool = False

    @property
    def file_name(self) -> str:
        """Of the file that stands for it."""
        return f"{self.number}_{self.run}_{self.cpus!r}_{self.memory}_{'granted' if self.is_granted else 'waiting'}"

    @classmethod
    def of(cls, file_name: str) -> SlotRequest | None:
        """The request that a file stands for; None where it stands for none."""
        with suppress(ValueError):
            number, run, cpus, memory, state = file_name.split("_")
            return cls(int(number), run, float(cpus), int(memory), state == "granted")
        return None


def capacity() -> Capacity:
    """What there is: of this machine what this process may use, or what the environment says.

    Raises:
        InputError: The environment says no amount.
    """
    return Capacity(_cpus(), _memory())


def refuse_excess(name: str, options_cpus: float, options_memory: int, there: Capacity) -> None:
    """See that a node could ever run.

    Raises:
        InputError: It asks for more than there is.
    """
    for what, is_more, wanted, amount in (
        ("cpus", options_cpus > there.cpus, f"{options_cpus:g}", f"{there.cpus:g}"),
        ("memory", options_memory > there.memory, spell_bytes(options_memory), spell_bytes(there.memory)),
    ):
        if is_more:
            raise InputError(
                f"{name} asks for {what}={wanted}, and this machine has {amount}",
                fix="ask for less in its .options(...), or run it elsewhere",
            )


def queue(requests: Sequence[SlotRequest], there: Capacity) -> tuple[list[SlotRequest], dict[SlotRequest, str]]:
    """Which of the requests that wait may go now, and in which order the others wait.

    The run that has the least goes first, by its larger share of the cores or of the memory (dominant resource
    fairness, Ghodsi et al. 2011); of equals, what came first. What does not fit holds back those behind it that want
    what it lacks, so that much can come free.

    Returns:
        Those that may go; those that may not, in their order, each with what it lacks: "cpus" or "memory".
    """
    cpus, memory = there.cpus, there.memory
    share: dict[str, float] = {}

    def give(request: SlotRequest) -> None:
        nonlocal cpus, memory
        cpus, memory = cpus - request.cpus, memory - request.memory
        part = max(request.cpus / there.cpus, request.memory / there.memory)
        share[request.run] = share.get(request.run, 0.0) + part

    for request in requests:
        if request.is_granted:
            give(request)
    waiting = sorted((each for each in requests if not each.is_granted), key=lambda each: each.number)
    going: list[SlotRequest] = []
    lacking: dict[SlotRequest, str] = {}
    short: set[str] = set()
    while waiting:
        request = min(waiting, key=lambda each: share.get(each.run, 0.0))  # of equals the first, as they are sorted
        waiting.remove(request)
        lacks = [
            what
            for what, wanted, free in (("cpus", request.cpus, cpus + _ROUNDING), ("memory", request.memory, memory))
            if wanted and (wanted > free or what in short)
        ]
        if lacks:
            short.update(lacks)
            lacking[request] = lacks[0]
        else:
            give(request)
            going.append(request)
    return going, lacking


@contextmanager
def slot(node: Node, run: str, pause: Callable[[float], None], note: Callable[[str], None]) -> Iterator[None]:
    """Have what a node asks for within the block; wait for it before, where it is not free.

    Args:
        node: The node. One that asks for nothing waits for nothing.
        run: Tells its run from all others of the machine.
        pause: Waits for so many seconds; what it raises ends the wait.
        note: Told what it waits for, each time that changes.

    Raises:
        InputError: It asks for more than there is.
    """
    cpus, memory = node.options.cpus, node.options.memory
    if (not cpus and CPUS not in os.environ and not memory) or _is_part_of_a_slot():
        yield
        return
    there = capacity()
    refuse_excess(node.id, cpus, memory, there)
    pool = _Pool(there)
    request, lock = pool.ask(digest("drivetrain-slot-run-v1", run)[:16], cpus or _cpus_by_default(there), memory)
    try:
        request = pool.wait(request, pause, note)
        with _marked():
            yield
    finally:
        pool.give_back(request, lock)


class _Pool:
    """The requests of this machine, as they stand in a folder."""

    def __init__(self, there: Capacity) -> None:
        self._there = there
        self._folder = lock_folder() / "slots"
        self._folder.mkdir(mode=0o700, exist_ok=True)

    def ask(self, run: str, cpus: float, memory: int) -> tuple[SlotRequest, int]:
        """Make a request; gives it with the descriptor that holds its lock."""
        with self._alone():
            number = max((each.number for each in self._requests()), default=0) + 1
            request = SlotRequest(number, run, float(cpus), memory)
            # Not inherited by what the task starts: the slot is the process's that does the task.
            lock = os.open(self._folder / request.file_name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return request, lock

    def wait(self, request: SlotRequest, pause: Callable[[float], None], note: Callable[[str], None]) -> SlotRequest:
        """Wait until a request is granted; gives it as it is then."""
        said = ""
        while True:
            with self._alone():
                requests = self._living(request)
                going, lacking = queue(requests, self._there)
                if request in going:
                    granted = request._replace(is_granted=True)
                    with suppress(FileNotFoundError):  # somebody emptied the folder, and may grant too much
                        (self._folder / request.file_name).rename(self._folder / granted.file_name)
                    return granted
                changed = self._changed()
            if (reason := _reason(request, requests, lacking)) != said:
                note(reason)
                said = reason
            until = time.monotonic() + _RECHECK
            while time.monotonic() < until and self._changed() == changed:
                pause(_POLL)

    def give_back(self, request: SlotRequest, lock: int) -> None:
        """Take a request back, granted or not."""
        with suppress(FileNotFoundError):  # a component may empty the folder of temporary files
            (self._folder / request.file_name).unlink()
        with suppress(OSError):  # or close what is not its own
            os.close(lock)

    def _living(self, asked_by: SlotRequest) -> list[SlotRequest]:
        """The requests whose processes live; those of others are removed."""
        living: list[SlotRequest] = []
        for request in self._requests():
            path = self._folder / request.file_name
            if request == asked_by or _is_locked(path):
                living.append(request)
            else:
                path.unlink(missing_ok=True)
        if asked_by not in living:
            living.append(asked_by)
        return living

    def _requests(self) -> list[SlotRequest]:
        files = (SlotRequest.of(name) for name in os.listdir(self._folder))  # noqa: PTH208 - names are all it takes
        return [request for request in files if request is not None]

    def _changed(self) -> int:
        """Differs once a request has come, was granted, or went."""
        try:
            return self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Within the block nobody else looks at requests, or makes one."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _reason(request: SlotRequest, requests: Sequence[SlotRequest], lacking: dict[SlotRequest, str]) -> str:
    """What a request waits for, as the run's progress shows it."""
    what, order = lacking[request], list(lacking)
    ahead = {each.run for each in order[: order.index(request)] if lacking[each] == what} - {request.run}
    if ahead:
        return f"waiting for {what}: {_runs(len(ahead))} before it"
    holders = {each.run for each in requests if each.is_granted and (each.cpus if what == "cpus" else each.memory)}
    others = len(holders - {request.run})
    return f"waiting for {what}: {_runs(others) if others else 'other nodes of its run'} at work"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        # A lock is of an open file, not of a process: that of another thread of this process is seen, too.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


_marks = threading.Lock()
_holding = 0


@contextmanager
def _marked() -> Iterator[None]:
    """Within the block, a run that a task starts in another process knows that it is part of that task's slot."""
    global _holding
    with _marks:
        _holding += 1
        os.environ[_HOLDER] = str(os.getpid())
    try:
        yield
    finally:
        with _marks:
            _holding -= 1
            if not _holding:
                os.environ.pop(_HOLDER, None)


def _is_part_of_a_slot() -> bool:
    """Whether a task that has a slot started this process: to wait for another would be to wait for oneself."""
    return os.environ.get(_HOLDER, str(os.getpid())) != str(os.getpid())


def _cpus_by_default(there: Capacity) -> float:
    return min(1.0, there.cpus) if CPUS in os.environ else 0.0


def lock_folder() -> Path:
    """A folder of this user's, the same for every run on the machine.

    Raises:
        InputError: It is another user's.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime, "drivetrain") if runtime else Path(tempfile.gettempdir(), f"drivetrain-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise InputError(f"{folder} belongs to another user", fix="set XDG_RUNTIME_DIR to a folder of your own")
    return folder


def _cpus() -> float:
    if (text := os.environ.get(CPUS)) is not None:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) or not math.ulp(0) < float(text):
            raise InputError(f"{CPUS} is {text!r:.60}", fix="give a number above 0")
        return float(text)
    there = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(float(there), int(quota) / int(period))
    return float(there)


def _memory() -> int:
    if (text := os.environ.get(MEMORY)) is not None:
        with suppress(BuildError):
            if (size := parse_bytes(text)) > 0:
                return size
        raise InputError(f"{MEMORY} is {text!r:.60}", fix='write e.g. "512MB" or "4GiB"')
    return total_memory()

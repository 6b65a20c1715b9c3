"""What attempts at nodes use of the machine: CPU, accelerators, memory, bytes, energy.

The operating system counts for a process, not for a node. While one attempt is at work in a process, what that process
and the children that it waited for use is the attempt's. While several are (the inline runner's branches), each has
what its thread used; the rest, of threads that components began and of children, is shared evenly among those at work.
So the sum over attempts is what the process used while any was at work: nothing is counted twice.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...errors import InputError

WATTS_PER_CORE: Final = "DRIVETRAIN_WATTS_PER_CORE"
WATTS_PER_ACCELERATOR: Final = "DRIVETRAIN_WATTS_PER_ACCELERATOR"
"""The environment variables that set what energy is estimated by where nothing measures it."""
WATTS: Final = {WATTS_PER_CORE: 4.0, WATTS_PER_ACCELERATOR: 300.0}
"""Watts where they are not set: of a virtual core at full load, about the averages that Cloud Carbon Footprint has for
AWS, Azure and Google Cloud (3.5 to 4.3); and of a data centre's accelerator at work."""
POWERCAP: Final = Path("/sys/class/powercap")
"""Where Linux has the energy counters of processors (RAPL)."""
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(eq=False)
class ResourceUse:
    """What one attempt used up to the meter's last reading.

    Attributes:
        accelerators: How many it has leased.
        began: When it began, by the monotonic clock.
        thread: The clock of its thread's CPU time; None where the platform gives none to others.
        thread_seconds: What that clock showed at the last reading.
        cpu_seconds: User and system time.
        bytes_read: By system calls, whether from a disk or from what memory held of it; None where it is not counted.
        bytes_written: The same of writing.
        joules: Of the processors, by their counters; None where they cannot be read.
        watts: What its energy is estimated by where nothing measures it: of a core, of an accelerator.
        cards: The model of its accelerators, "" where unknown, and the joules they had used when it began, None where
            they do not say.
    """

    accelerators: int
    began: float
    thread: int | None
    thread_seconds: float
    watts: tuple[float, float]
    cpu_seconds: float = 0.0
    bytes_read: float | None = None
    bytes_written: float | None = None
    joules: float | None = None
    cards: tuple[str, float | None] = ("", None)

    def take_thread_seconds(self) -> float:
        """What its thread used since the last reading."""
        if self.thread is None:
            return 0.0
        before = self.thread_seconds
        with suppress(OSError):  # a thread that has ended shows none
            self.thread_seconds = time.clock_gettime(self.thread)
        return max(0.0, self.thread_seconds - before)


class _Counters(NamedTuple):
    """What the operating system has counted by a moment.

    Attributes:
        cpu_seconds: Of this process and the children that it waited for.
        bytes: Read and written; None where they are not counted.
        microjoules: Of each energy counter.
        busy_seconds: Of all cores of the machine, so far as they were not idle; 0 where nothing needs it.
    """

    cpu_seconds: float
    bytes: tuple[int, int] | None
    microjoules: tuple[int, ...] | None
    busy_seconds: float


@dataclass
class _Rapl:
    """The energy counters of this machine's processors and their memory.

    Attributes:
        files: A counter each, in microjoules.
        ranges: Where each begins again at 0.
    """

    files: list[Path] = field(default_factory=list)
    ranges: list[int] = field(default_factory=list)

    @classmethod
    def of_machine(cls) -> _Rapl:
        """Those that may be read; of processors and their memory, as other counters count parts of these again."""
        counters = cls()
        for folder in sorted(POWERCAP.glob("intel-rapl:*")):
            with suppress(OSError, ValueError):
                name = (folder / "name").read_text().strip()
                if name.startswith("package") or name == "dram":
                    int((folder / "energy_uj").read_text())
                    counters.ranges.append(int((folder / "max_energy_range_uj").read_text()))
                    counters.files.append(folder / "energy_uj")
        return counters

    def read(self) -> tuple[int, ...] | None:
        if not self.files:
            return None
        try:
            return tuple(int(file.read_text()) for file in self.files)
        except (OSError, ValueError):
            return None

    def joules(self, before: tuple[int, ...], now: tuple[int, ...]) -> float:
        """What was used between two readings; a counter may have begun again once."""
        return (
            sum(
                (end - start) % most if end < start else end - start
                for start, end, most in zip(before, now, self.ranges, strict=True)
            )
            / 1e6
        )


class ProcessMeter:
    """Tells what each attempt in this process uses. Any thread may call it; one that begins an attempt also ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work: list[ResourceUse] = []
        self._last = _Counters(0.0, None, None, 0.0)
        self._rapl: _Rapl | None = None

    def begin(self, accelerators: int = 0) -> ResourceUse:
        """An attempt begins in the calling thread, with so many accelerators leased.

        Raises:
            InputError: What energy is estimated by is no number.
        """
        watts, thread = (_watts(WATTS_PER_CORE), _watts(WATTS_PER_ACCELERATOR)), None
        with suppress(AttributeError, OSError):  # macOS has no clock of a thread that others can read
            thread = time.pthread_getcpuclockid(threading.get_ident())
        seconds = 0.0 if thread is None else time.clock_gettime(thread)
        cards = _cards(accelerators) if accelerators else ("", None)
        with self._lock:
            if self._rapl is None:
                self._rapl = _Rapl.of_machine()
            self._read()
            use = ResourceUse(accelerators, time.monotonic(), thread, seconds, watts, cards=cards)
            if self._last.bytes is not None:
                use.bytes_read = use.bytes_written = 0.0
            if self._last.microjoules is not None:
                use.joules = 0.0
            self._at_work.append(use)
        return use

    def read(self) -> None:
        """Share what was used since the last reading; called often enough that no energy counter begins again twice."""
        with self._lock:
            self._read()

    def end(self, use: ResourceUse) -> None:
        """The attempt has ended; a second time nothing happens."""
        with self._lock:
            if use in self._at_work:
                self._read()
                self._at_work.remove(use)

    def recorded(self, use: ResourceUse) -> dict[str, Any]:
        """What an attempt used by now, as its execution records it under `resources`.

        Returns:
            `cpu_seconds`; `peak_memory`, in bytes, the most that the process or a child of it ever held by now; what is
            known of `bytes_read` and `bytes_written`; `joules`, with `energy` "measured" or "estimate"; with
            accelerators `gpu_seconds`, of each the seconds that it was leased, and their model as `accelerator`.
        """
        self.read()
        seconds = time.monotonic() - use.began
        measured = use.joules is not None
        joules = use.joules if use.joules is not None else use.cpu_seconds * use.watts[0]
        about: dict[str, Any] = {"cpu_seconds": round(use.cpu_seconds, 6), "peak_memory": _peak_memory()}
        if use.bytes_read is not None and use.bytes_written is not None:
            about |= {"bytes_read": round(use.bytes_read), "bytes_written": round(use.bytes_written)}
        if use.accelerators:
            model, before = use.cards
            now = _cards(use.accelerators)[1] if before is not None else None
            measured = measured and before is not None and now is not None
            if before is not None and now is not None:
                joules += now - before
            else:
                joules += use.accelerators * seconds * use.watts[1]
            about |= {"gpu_seconds": round(use.accelerators * seconds, 6), **({"accelerator": model} if model else {})}
        return {**about, "joules": round(joules, 3), "energy": "measured" if measured else "estimate"}

    def _read(self) -> None:
        """Share what was used since the last reading among the attempts at work."""
        before, now = self._last, self._counters()
        self._last = now
        if not self._at_work:
            return
        cpu_seconds, count = now.cpu_seconds - before.cpu_seconds, len(self._at_work)
        of_threads = [use.take_thread_seconds() for use in self._at_work]
        rest = max(0.0, cpu_seconds - sum(of_threads)) / count
        joules = 0.0  # for a second of CPU
        if self._rapl is not None and before.microjoules is not None and now.microjoules is not None:
            busy_seconds = max(now.busy_seconds - before.busy_seconds, cpu_seconds, 1e-9)
            joules = self._rapl.joules(before.microjoules, now.microjoules) / busy_seconds
        for use, of_thread in zip(self._at_work, of_threads, strict=True):
            use.cpu_seconds += of_thread + rest
            if use.joules is not None:
                use.joules += joules * (of_thread + rest)
            if use.bytes_read is not None and use.bytes_written is not None and now.bytes and before.bytes:
                use.bytes_read += (now.bytes[0] - before.bytes[0]) / count
                use.bytes_written += (now.bytes[1] - before.bytes[1]) / count

    def _counters(self) -> _Counters:
        microjoules = self._rapl.read() if self._rapl else None
        if microjoules is None:  # a process that has no file free: what it uses meanwhile comes with the next reading
            microjoules = self._last.microjoules
        busy_seconds = 0.0 if microjoules is None else _busy_seconds()
        return _Counters(process_seconds(), _bytes() or self._last.bytes, microjoules, busy_seconds)


def process_seconds() -> float:
    """CPU seconds of this process and of the children that it waited for, user and system."""
    of_each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in of_each)


def _peak_memory() -> int:
    """Bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _bytes() -> tuple[int, int] | None:
    """Bytes that this process and the children that it waited for read and wrote by system calls."""
    try:
        with open("/proc/self/io", "rb") as file:  # noqa: PTH123 - half the time of pathlib's, at each node
            read, written = file.read().split(b"\n", 2)[:2]
        return int(read.removeprefix(b"rchar:")), int(written.removeprefix(b"wchar:"))
    except (OSError, ValueError):
        return None


def _busy_seconds() -> float:
    """Seconds that cores of this machine were not idle, of all since it started."""
    try:
        with open("/proc/stat", "rb") as file:  # noqa: PTH123
            ticks = [int(number) for number in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts = ticks
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def _watts(name: str) -> float:
    text = os.environ.get(name) or str(WATTS[name])
    with suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise InputError(f"{name} is {text!r}", fix="give watts, e.g. 4.5")


def _cards(accelerators: int) -> tuple[str, float | None]:
    """The model of the accelerators that were leased, and the joules they have used, by NVIDIA's library.

    "" and None where the library (the package nvidia-ml-py) is not there, or a card, a part of one say, does not count,
    or which they are is not said.
    """
    try:
        import pynvml as library
    except ImportError:
        return "", None
    model = ""
    try:
        library.nvmlInit()
        visible = os.environ.get(_VISIBLE) or ",".join(map(str, range(library.nvmlDeviceGetCount())))
        names = [name.strip() for name in visible.split(",")]
        if len(names) != accelerators:
            return "", None
        handles = [
            library.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdecimal()
            else library.nvmlDeviceGetHandleByUUID(name)
            for name in names
        ]
        model = _text(library.nvmlDeviceGetName(handles[0]))
        return model, sum(library.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles) / 1000
    except (library.NVMLError, AttributeError):  # an older release lacks some of them
        return model, None


def _text(name: str | bytes) -> str:
    """Older releases of the library give bytes."""
    return name.decode() if isinstance(name, bytes) else name


METER: Final = ProcessMeter()
"""Of this process."""
os.register_at_fork(after_in_child=METER.__init__)  # type: ignore[misc]

"""What tasks have of the machine while they run: cores and memory among those of a run, accelerators among all runs.

Cores and memory among all runs are taken by the task's own process, which knows whether it has to do anything
(`launcher.slots`): here a run only sees to it that it starts no more than could ever run at once.

An accelerator is held by a lock on a file, which the task's process inherits: the operating system gives it back when
the last of them is dead, however it died.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import InputError
from ..ir.ir import Node, Pipeline
from ..launcher.slots import Capacity, capacity, lock_folder, refuse_excess

ACCELERATORS = "DRIVETRAIN_ACCELERATORS"
"""The environment variable that says how many accelerators there are, where drivetrain cannot find them."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""What a process gets that leased no accelerator: JAX would take three quarters of the memory of one it finds."""


@dataclass(frozen=True)
class Lease:
    """What one task has.

    Attributes:
        cpus: Cores.
        memory: Bytes.
        devices: Accelerators, by the names that `CUDA_VISIBLE_DEVICES` takes.
        locks: The descriptors that hold them.
    """

    cpus: float = 0.0
    memory: int = 0
    devices: tuple[str, ...] = ()
    locks: tuple[int, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """What its process gets to see of them."""
        if not self.devices:
            return {name: value for name, value in SHARED.items() if name not in os.environ}
        names = ",".join(self.devices)
        tpus = {"TPU_VISIBLE_CHIPS": names} if all(name.isdecimal() for name in self.devices) else {}
        return {VISIBLE: names, **tpus}


@dataclass
class Machine:
    """What there is, and what of it is free.

    Attributes:
        cpus: Cores.
        memory: Bytes.
        devices: Names of accelerators.
    """

    cpus: float
    memory: int
    devices: tuple[str, ...] = ()
    _taken: list[Lease] = field(default_factory=list)
    _short: set[str] = field(default_factory=set)

    @classmethod
    def this(cls, *, devices: bool) -> Machine:
        """This machine, as far as this process may use it; its accelerators only where they are asked for."""
        there = capacity()
        return cls(there.cpus, there.memory, find_devices() if devices else ())

    def check(self, nodes: Iterable[Node]) -> None:
        """See that each node could ever run.

        Raises:
            InputError: One asks for more than there is.
        """
        for node in nodes:
            asked, there = node.options.accelerators, len(self.devices)
            refuse_excess(node.id, node.options.cpus, node.options.memory, Capacity(self.cpus, self.memory))
            if asked > there:
                raise InputError(
                    f"{node.id} asks for accelerators={asked}, and this machine has {there}",
                    fix=f"ask for less in its .options(...), or set {ACCELERATORS} if there are more, or run it "
                    "elsewhere",
                )

    def begin(self) -> None:
        """A new round of asking. What one is refused, no later one of the round gets, so that much can come free."""
        self._short.clear()

    def take(self, node: Node) -> Lease | None:
        """What a node asks for; None where it is not free now."""
        asked = node.options
        short = {
            name
            for name, wanted, free in (
                ("cpus", asked.cpus, self.cpus - sum(lease.cpus for lease in self._taken)),
                ("memory", asked.memory, self.memory - sum(lease.memory for lease in self._taken)),
            )
            if wanted and (wanted > free or name in self._short)
        }
        locks: dict[str, int] = {}
        # Locks come last: what a node would not get anyway must not keep other runs from a device meanwhile.
        if asked.accelerators and not short:
            if "accelerators" not in self._short:
                locks = self._lock(asked.accelerators)
            short |= set() if locks else {"accelerators"}
        if short:
            self._short |= short
            return None
        lease = Lease(asked.cpus, asked.memory, tuple(locks), tuple(locks.values()))
        self._taken.append(lease)
        return lease

    def release(self, lease: Lease) -> None:
        """Give it back; of accelerators this process's part, as the task's process may have one of its own."""
        self._taken.remove(lease)
        for lock in lease.locks:
            os.close(lock)

    @property
    def waits_for_others(self) -> bool:
        """Whether this round something was refused that another run may hold."""
        return "accelerators" in self._short

    def _lock(self, count: int) -> dict[str, int]:
        """As many accelerators, or none at all, so that no two wait for each other's."""
        locks: dict[str, int] = {}
        folder = lock_folder()
        for device in self.devices:
            lock = os.open(folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', device)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # A lock of the kernel ends with the last process that has it open, however that ends: none is left
                # behind.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                continue
            locks[device] = lock
            if len(locks) == count:
                return locks
        for lock in locks.values():
            os.close(lock)
        return {}


def machine_for(pipeline: Pipeline) -> Machine:
    """This machine, seen to be enough for each node of a pipeline.

    Raises:
        InputError: A node asks for more than there is.
    """
    machine = Machine.this(devices=any(node.options.accelerators for node in pipeline.nodes))
    machine.check(pipeline.nodes)
    return machine


def find_devices() -> tuple[str, ...]:
    """The accelerators that this process may use, without loading their libraries."""
    if (count := os.environ.get(ACCELERATORS)) is not None:
        if not count.isdecimal():
            raise InputError(f"{ACCELERATORS} is {count!r}", fix="give a number")
        return tuple(str(number) for number in range(int(count)))
    if (visible := os.environ.get(VISIBLE)) is not None:
        return tuple(name for name in visible.split(",") if name and name != "-1")
    return _nvidia() or tuple(path.name.removeprefix("accel") for path in sorted(Path("/dev").glob("accel[0-9]*")))


def _nvidia() -> tuple[str, ...]:
    """By UUID: a number would mean another card in another container. Of a card cut in parts, the parts."""
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        with suppress(OSError, subprocess.SubprocessError):
            listing = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=60, check=True).stdout  # noqa: S603
            return parse_cards(listing)
    return tuple(path.name.removeprefix("nvidia") for path in sorted(Path("/dev").glob("nvidia[0-9]*")))


def parse_cards(listing: str) -> tuple[str, ...]:
    """The devices that `nvidia-smi -L` lists."""
    cards: list[list[str]] = []
    for line in listing.splitlines():
        match = re.search(r"\(UUID: ((?:GPU|MIG)-[^)\s]+)\)", line)
        if match and match[1].startswith("GPU"):
            cards.append([match[1]])
        elif match and cards:
            cards[-1].append(match[1])
    return tuple(name for card in cards for name in (card[1:] or card))

"""Several processes as one training: who coordinates, how many there are and which one this is, by the environment."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import InputError

COORDINATOR = "DRIVETRAIN_COORDINATOR"
PROCESSES = "DRIVETRAIN_PROCESSES"
PROCESS = "DRIVETRAIN_PROCESS"
PATIENCE = 1800
"""Seconds that all processes get to come together: machines may have to be started for them."""


@dataclass(frozen=True)
class ClusterSpec:
    """The processes of one training.

    Attributes:
        coordinator: "host:port" at which the first of them brings the others together.
        processes: How many there are.
        process: The number of this one, from 0, which alone publishes what was trained.
    """

    coordinator: str
    processes: int
    process: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> ClusterSpec | None:
        """What the environment says; None where it says of one process alone, or nothing.

        Raises:
            InputError: It says half of it, or what makes no sense.
        """
        variables = {name: environment.get(name, "") for name in (COORDINATOR, PROCESSES, PROCESS)}
        if not variables[PROCESSES] or variables[PROCESSES] == "1":
            return None
        try:
            cluster = cls(variables[COORDINATOR], int(variables[PROCESSES]), int(variables[PROCESS]))
        except ValueError:
            cluster = None
        port = variables[COORDINATOR].rpartition(":")[2]
        if cluster is None or not port.isdigit() or not 0 <= cluster.process < cluster.processes:
            shown = ", ".join(f"{name}={value!r}" for name, value in variables.items())
            raise InputError(
                f"the environment describes no training of several processes: {shown}",
                fix="give host:port, N, and 0 to N-1",
            )
        return cluster

    def environment(self) -> dict[str, str]:
        """The variables that `from_environment` reads, for the environment of a process."""
        return {COORDINATOR: self.coordinator, PROCESSES: str(self.processes), PROCESS: str(self.process)}

    def join(self, patience: float = PATIENCE) -> None:
        """Bring this process together with the others; before JAX is used in it, and once.

        Args:
            patience: Seconds that the others may take. Where the first waits longer for one that does not come, JAX
                ends the process.

        Raises:
            InputError: Nobody coordinates them in that time.
        """
        import jax

        if jax.distributed.is_initialized():
            return
        begin = time.monotonic()
        if self.process:
            self._reach(begin + patience)
        left = max(1, int(begin + patience - time.monotonic()))
        jax.distributed.initialize(self.coordinator, self.processes, self.process, initialization_timeout=left)

    def _reach(self, deadline: float) -> None:
        """Wait until somebody listens at the coordinator's address: JAX ends a process that waits for it in vain."""
        host, _, port = self.coordinator.rpartition(":")
        while True:
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise InputError(
                        f"process {self.process} of {self.processes} finds nobody at {self.coordinator}: {error}",
                        fix="see that the first was started, and that its port can be reached from here",
                    ) from None
            time.sleep(0.5)

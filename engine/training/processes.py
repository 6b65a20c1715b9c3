"""Several processes as one training: who coordinates, how many there are and which one this is, by the environment."""

from __future__ import annotations

import os
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
        told = {name: environment.get(name, "") for name in (COORDINATOR, PROCESSES, PROCESS)}
        if not told[PROCESSES] or told[PROCESSES] == "1":
            return None
        try:
            found = cls(told[COORDINATOR], int(told[PROCESSES]), int(told[PROCESS]))
        except ValueError:
            found = None
        if found is None or ":" not in found.coordinator or not 0 <= found.process < found.processes:
            shown = ", ".join(f"{name}={value!r}" for name, value in told.items())
            raise InputError(f"the environment tells of no processes: {shown}", fix="give host:port, N, and 0 to N-1")
        return found

    def environment(self) -> dict[str, str]:
        """As `from_environment` reads it."""
        return {COORDINATOR: self.coordinator, PROCESSES: str(self.processes), PROCESS: str(self.process)}

    def join(self, patience: int = PATIENCE) -> None:
        """Bring this process together with the others; before JAX is used in it, and once.

        Args:
            patience: Seconds that the others may take.

        Raises:
            InputError: They did not come in time.
        """
        import jax

        if jax.distributed.is_initialized():
            return
        try:
            jax.distributed.initialize(self.coordinator, self.processes, self.process, initialization_timeout=patience)
        except RuntimeError as error:
            raise InputError(
                f"process {self.process} of {self.processes} did not meet the others at {self.coordinator}: "
                f"{str(error).splitlines()[0]:.200}",
                fix="see that all of them were started, and that the coordinator's port can be reached from each",
            ) from None

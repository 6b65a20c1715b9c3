"""The `drivetrain` command in forks of one process that has imported what the flights need."""

from __future__ import annotations

import json
import time

from drivetrain.tests.examples import flights_job as job
from drivetrain.tests.forks import Forks


def commands() -> Forks:
    """For the time of a `with` block."""
    verbs = (f"drivetrain.console.{verb}" for verb in ("fsck", "resume", "run", "runs"))
    rooms = ("drivetrain.components", "drivetrain.data", "drivetrain.engine")
    return Forks("drivetrain.console:main", *verbs, *rooms, "flax.linen", "flax.nnx", "optax", "pandas", "scipy.linalg")


def drive(forks: Forks, *arguments: str) -> job.Done:
    """Run a verb with --json and wait."""
    begin = time.monotonic()
    fork = forks.start(*arguments, "--json")
    end = fork.end(None)
    assert end is not None
    wall = time.monotonic() - begin
    lines = fork.out.read_text().splitlines()
    return job.Done(result=json.loads(lines[-1]) if lines else {}, wall=wall, err=fork.err.read_text(), **end)

"""A data pass whose job service is killed in its middle, for a process of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from drivetrain.data import Source, executor, sinks
from drivetrain.errors import DrivetrainError
from drivetrain.tests.data import passes


def map_until_killed(source: Source, flags: tuple[str, ...], service: int, folder: Path) -> str:
    """Kill the process group of the service once rows have come; gives the error that the pass ends with."""
    kills: list[int] = []

    def kill(rows: int, total: int | None, unit: str) -> None:
        if rows and not kills:
            os.killpg(service, signal.SIGKILL)
            kills.append(rows)

    try:
        executor("beam", flags).map(source, passes.Slow(), sinks(folder, ["all"]), progress=kill)
    except DrivetrainError as error:
        return f"{error}\n{error.fix}" if kills else f"before any row: {error}"
    return "it ended well"

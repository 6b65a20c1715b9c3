"""The node entrypoint: `python -m drivetrain.pipelines.node --root R --run ID --ir DIGEST --node ID`.

What every runner but the inline one starts in a child process. Events leave on standard output as JSON text sequences
(RFC 7464: a record separator, JSON, a line feed), so that what the user prints is never taken for one.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path

from ..errors import DrivetrainError, InputError
from .launching.home import Home, open_run
from .launching.launcher import Launcher
from .launching.outcome import NodeResult

RECORD = "\x1e"
"""Begins an event."""


class Lines:
    """An observer that prints one record per event."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def _print(self, **event: object) -> None:
        with self._lock:
            sys.stdout.write(f"{RECORD}{json.dumps(event)}\n")
            sys.stdout.flush()

    def started(self, node: str) -> None:
        """Print it."""
        self._print(event="started", node=node)

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Print it."""
        self._print(event="progress", node=node, done=done, total=total, unit=unit)

    def note(self, node: str, text: str) -> None:
        """Print it."""
        self._print(event="note", node=node, text=text)

    def ended(self, result: NodeResult) -> None:
        """Print it."""
        flags = {"vetoed": result.vetoed, "user_error": result.user_error}
        self._print(event="ended", node=result.node, **result.to_json(), **flags)


def _stop(number: int, frame: object) -> None:
    """Cancel the node; once, because Ctrl-C comes from the terminal and then from the runner, amid recording it."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    """Launch one node; 0 unless it failed (1) or was cancelled (130)."""
    parser = argparse.ArgumentParser(
        prog="python -m drivetrain.pipelines.node",
        description="Launch one node of a recorded run.",
        epilog="example: python -m drivetrain.pipelines.node --root .drivetrain --run 20261121-093000-1a2b "
        "--ir 5f0c… --node Trainer",
    )
    parser.add_argument("--root", type=Path, required=True, help="the run's root folder")
    parser.add_argument("--store", help="where the metadata lies, if not in the root")
    parser.add_argument("--run", required=True, help="run id")
    parser.add_argument("--ir", required=True, help="digest of the compiled pipeline")
    parser.add_argument("--node", required=True, help="node id")
    arguments = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        home = Home(arguments.root, store=arguments.store)
        run = open_run(home, arguments.run)
        if run.pipeline.digest != arguments.ir:
            raise InputError(f"run {run.id} is of another pipeline than {arguments.ir[:12]}", fix="check --run, --ir")
        result = Launcher(home, run, Lines()).launch(arguments.node)
    except DrivetrainError as error:
        print(error, file=sys.stderr)
        return 2
    return {"FAILED": 1, "CANCELED": 130}.get(result.state, 0)


if __name__ == "__main__":
    sys.exit(main())

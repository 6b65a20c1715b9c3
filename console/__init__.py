"""The console: the command line, what is shown of a run, and past runs in a notebook."""

from __future__ import annotations

import sys


def main() -> None:
    """The `drivetrain` command; ends the process with the verb's exit code."""
    try:
        from .cli import main as run
    except KeyboardInterrupt:  # before there is anything that could print it
        sys.stderr.write("cancelled\n")
        sys.exit(130)
    run()


__all__ = ["main"]

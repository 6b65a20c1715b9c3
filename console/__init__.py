"""The console room: the command line, what is shown of a run, and past runs in a notebook."""

from __future__ import annotations


def main() -> None:
    """The `drivetrain` command; ends the process with the verb's exit code."""
    from .cli import main as run

    run()


__all__ = ["main"]

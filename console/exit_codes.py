"""Exit codes, which say whose an error is, and the one line that an error is for people."""

from __future__ import annotations

from typing import Final

from ..errors import DrivetrainError
from .terminal import echo

OK: Final = 0
CRASH: Final = 1
USER_ERROR: Final = 2
STOPPED: Final = 3
NOT_BLESSED: Final = 4
CANCELED: Final = 130
TERMINATED: Final = 143
"""128 + 15, as of any program that SIGTERM ended: a supervisor knows by it that nobody cancelled the run."""
EXIT_CODES: Final = """\b
Exit codes:
  0    complete: every node ended well, or its condition was false
  1    something crashed: drivetrain, a library, a process
  2    yours to fix: usage, the pipeline, your own code, its input, its parameters
  3    stopped by validation: a gate vetoed, what depends on it did not run
  4    complete, but not every model was blessed, of a run with --require-blessed
  130  cancelled by Ctrl-C; `drivetrain resume` goes on
  143  ended by SIGTERM, as where a machine is taken back: `drivetrain resume` goes on
"""


def complain(error: DrivetrainError) -> None:
    """Print an error that a person can act on: the user's own line, the cause, the fix."""
    echo(f"error: {error}", err=True)

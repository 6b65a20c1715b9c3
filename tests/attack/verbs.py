"""The command line, called as the shell calls it, in this process: what it printed, and whether that is in order."""

from __future__ import annotations

import re
from dataclasses import dataclass

from click.testing import CliRunner
from drivetrain.tests.attack.attack import Finding

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""What a terminal obeys, or what makes a text look like another: C0 and C1 controls, and Unicode's of direction."""


@dataclass(frozen=True)
class Printed:
    """What a verb did.

    Attributes:
        code: Its exit code.
        stdout: Its standard output.
        stderr: Its standard error.
    """

    code: int
    stdout: str
    stderr: str


def verb(*arguments: str, prints: bool = False) -> Printed:
    """Call a verb.

    Args:
        arguments: As in the shell.
        prints: Whether the user's own code prints while it runs inline, which goes to the terminal as it is.

    Raises:
        Finding: It ended in a traceback, or printed what steers a terminal.
    """
    from drivetrain.console.cli import cli

    result = CliRunner().invoke(cli, list(arguments), prog_name="drivetrain")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    check_printed("" if prints else result.stdout, result.stderr, arguments)
    return Printed(result.exit_code, result.stdout, result.stderr)


def check_printed(stdout: str, stderr: str, arguments: tuple[str, ...] = ()) -> None:
    """Look at what came out.

    Raises:
        Finding: A traceback, or what steers a terminal.
    """
    called = " ".join(arguments[:1])
    if "Traceback (most recent call last)" in stderr or "unexpected error: " in stderr:
        last = [
            line
            for line in stderr.splitlines()
            if re.match(r"\w[\w.]*(Error|Exception|Interrupt|Exit)\b|unexpected", line)
        ]
        frames = re.findall(r'File ".*?/(\w+\.py)", line \d+, in (\w+)', stderr)
        at = ":".join(frames[-1]) if frames else "?"
        error = (last or ["?"])[-1].partition(":")[0]
        raise Finding(f"{called}: {error} at {at}\n{' '.join(arguments)}\n{stderr[-4000:]}")
    for text in (stdout, stderr):
        if (raw := STEERING.search(text)) is not None:
            around = text[max(raw.start() - 60, 0) : raw.end() + 20]
            raise Finding(f"{called} prints what steers a terminal\n{' '.join(arguments)}\n{around!r}")
